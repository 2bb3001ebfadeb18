// HDF5 files of plain arrays and attributes, for checkpoints and for users' data sets. Every call
// takes the process-wide Hdf5Lock.
// Thread safety: const methods may run concurrently; others need external synchronization. Different objects
// may be used by different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/dtype.h"

namespace farandole {

// Sees the bytes of an array in order, in pieces that stay in the cache of a core: right before they are
// written, or after they were read.
using SeePiece = std::function<void(std::span<const std::byte>)>;

// One data set of a file that is open for reading. It keeps the file open.
class Hdf5Dataset {
 public:
  struct Impl;
  // Other: strings, compounds, …, of which only strings can be read here (read_texts).
  enum class Kind { integer, floating, boolean, other };

  const std::string& path() const;
  const std::vector<std::int64_t>& shape() const;
  std::int64_t rows() const;                 // first dimension; 1 for a scalar
  std::size_t row_bytes(DType dtype) const;  // bytes of one row in memory
  std::int64_t chunk_rows() const;           // rows that the file holds together; 1 if it has no chunks
  Kind kind() const;
  // The stored type in any byte order; std::nullopt for a type that DType lacks, such as int16.
  std::optional<DType> dtype() const;
  // Where its bytes begin in the file; std::nullopt if HDF5 must find or convert them.
  std::optional<std::uint64_t> offset() const;
  std::string type_name() const;  // for messages: "float32", "int16", "uint64", "other"
  std::string file() const;       // for messages
  // std::nullopt if the attribute does not exist or has another type.
  std::optional<std::string> string_attribute(const std::string& name) const;

  // Reads rows [first, first + count) into `out`, which must have exactly count * row_bytes(dtype) bytes.
  // HDF5 converts integers and floats to `dtype`, and cuts off fractions. boolean can only be read from
  // boolean, and bfloat16 data only as bfloat16.
  // Throws: UserError if the rows or the conversion do not exist.
  // Throws: CorruptInput if the data is damaged, or if whole numbers of this type cannot hold a value.
  void read_rows(std::int64_t first, std::int64_t count, DType dtype, std::span<std::byte> out) const;

  // Calls `use` with each text of the rows [first, first + count), which must each have one.
  // Throws: UserError if this is no data set with one text for each row; CorruptInput if the data is damaged.
  void read_texts(std::int64_t first, std::int64_t count,
                  const std::function<void(std::string_view)>& use) const;

  // Reads all data as stored; dtype() must have a value and `out` the exact size.
  // Throws: CorruptInput if the data is damaged.
  void read(std::span<std::byte> out, const SeePiece& see = {}) const;

 private:
  friend class Hdf5File;
  explicit Hdf5Dataset(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// An object of a file that cannot be read.
struct Hdf5Problem {
  std::string path;
  std::string reason;      // A sentence about it: "it has no values".
  bool damaged = false;    // Otherwise, what is wrong is the reader's or the user's.
  bool elsewhere = false;  // Its values are in another file.
};

class Hdf5File {
 public:
  struct Impl;

  // Creates a file that HDF5 1.8 and later can read, and replaces a file with this name. HDF5 stores
  // checksums of its metadata. The first `metadata_bytes` of the file are for metadata; 2 KiB per array are
  // plenty. If it needs more, it costs as much memory as the file has bytes.
  // Throws: Error if this fails.
  static Hdf5File create(const std::filesystem::path& path, std::size_t metadata_bytes = 64 << 10);
  // Opens a file for reading.
  // Throws: UserError if it does not exist or cannot be read.
  // Throws: CorruptInput if it is not an HDF5 file.
  static Hdf5File open(const std::filesystem::path& path);
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

  // --- Writing. Throws: Error if writing fails. ---
  // `path` is "/group/name"; missing groups are created. bfloat16 is stored as uint16, and bool as h5py's
  // enumeration. Every array gets the attribute "dtype". An empty shape is a scalar.
  void write_array(const std::string& path, DType dtype, std::span<const std::int64_t> shape,
                   std::span<const std::byte> bytes, const SeePiece& see = {});
  // `object` is "/" or the path of a data set. Strings are stored as fixed-length UTF-8.
  void set_attribute(const std::string& object, const std::string& name, std::int64_t value);
  void set_attribute(const std::string& object, const std::string& name, double value);
  void set_attribute(const std::string& object, const std::string& name, std::string_view value);
  void close();  // writes everything without fsync; without close() there is no valid HDF5 file

  // --- Reading. Throws: CorruptInput if the file is damaged. ---
  std::vector<std::string> list() const;      // absolute paths of all data sets, sorted
  std::vector<Hdf5Dataset> datasets() const;  // all data sets, sorted by their paths
  // The same of a user's file, in which not all must be readable. Links to other files are not followed.
  std::vector<Hdf5Dataset> datasets(std::vector<Hdf5Problem>& problems) const;
  bool contains(const std::string& path) const;        // true for data sets and groups
  Hdf5Dataset dataset(const std::string& path) const;  // throws UserError if it does not exist
  // std::nullopt if the attribute does not exist or has another type.
  std::optional<std::int64_t> integer_attribute(const std::string& object, const std::string& name) const;
  std::optional<double> double_attribute(const std::string& object, const std::string& name) const;
  std::optional<std::string> string_attribute(const std::string& object, const std::string& name) const;

 private:
  explicit Hdf5File(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace farandole
