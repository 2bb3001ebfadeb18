// HDF5 files of plain arrays and attributes, for checkpoints and for users' data sets. Different objects may
// be used by different threads at once; reading from one object may be, too. Every call takes the
// process-wide Hdf5Lock by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/dtype.h"

namespace farandole {

// One data set of a file that was opened for reading; it keeps the file open.
class Hdf5Dataset {
 public:
  struct Impl;
  enum class Kind { integer, floating, boolean, other };  // other: strings, compounds, … cannot be read here

  const std::vector<std::int64_t>& shape() const;
  std::int64_t rows() const;                 // first dimension; 1 for a scalar
  std::size_t row_bytes(DType dtype) const;  // of one row in memory
  Kind kind() const;
  std::optional<DType> dtype()
      const;                      // as stored, whatever the byte order; nullopt: another type, such as int16
  std::string type_name() const;  // for messages: "float32", "int16", "uint64", "other"
  std::string file() const;       // for messages

  // Rows [first, first + count) into out, of exactly count * row_bytes(dtype) bytes. HDF5 converts integers
  // and floats to `dtype`: what does not fit is clipped, fractions are cut. boolean is read only from
  // boolean, and bfloat16 data only as such. Throws UserError for rows that are not there or a conversion
  // that does not exist, CorruptInput for damaged data.
  void read_rows(std::int64_t first, std::int64_t count, DType dtype, std::span<std::byte> out) const;

  // All of it as stored (dtype() has a value), into exactly its bytes. Throws CorruptInput.
  void read(std::span<std::byte> out) const;

 private:
  friend class Hdf5File;
  explicit Hdf5Dataset(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

class Hdf5File {
 public:
  struct Impl;

  // A new file, readable by HDF5 1.8 and later; replaces one of that name. Its metadata carries HDF5's
  // checksums. Throws Error.
  static Hdf5File create(const std::filesystem::path& path);
  // For reading. Throws UserError where it does not exist or may not be read, CorruptInput where it is no
  // HDF5 file.
  static Hdf5File open(const std::filesystem::path& path);
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

  // --- writing; all throw Error ---
  // "/group/name": groups are made as needed. bfloat16 is stored as uint16, bool as h5py's enumeration; every
  // array gets the attribute "dtype". An empty shape is a scalar.
  void write_array(const std::string& path, DType dtype, std::span<const std::int64_t> shape,
                   std::span<const std::byte> bytes);
  // `object` is "/" or a data set's path. Strings are fixed-length UTF-8.
  void set_attribute(const std::string& object, const std::string& name, std::int64_t value);
  void set_attribute(const std::string& object, const std::string& name, double value);
  void set_attribute(const std::string& object, const std::string& name, std::string_view value);
  void close();  // hands everything to the operating system, no fsync; without it there is no HDF5 file

  // --- reading; all throw CorruptInput ---
  std::vector<std::string> list() const;               // absolute paths of all data sets, sorted
  bool contains(const std::string& path) const;        // a data set or group
  Hdf5Dataset dataset(const std::string& path) const;  // UserError where there is none
  // nullopt: absent, or of another type.
  std::optional<std::int64_t> integer_attribute(const std::string& object, const std::string& name) const;
  std::optional<double> double_attribute(const std::string& object, const std::string& name) const;
  std::optional<std::string> string_attribute(const std::string& object, const std::string& name) const;

 private:
  explicit Hdf5File(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace farandole
