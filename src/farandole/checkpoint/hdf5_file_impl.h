// What Hdf5File and Hdf5Dataset share: the open file and its check. Private to their sources.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/checkpoint/hdf5_handle.h"
#include "farandole/checkpoint/raw_data.h"

namespace farandole {

// A new file is written twice over: HDF5 writes its metadata and small arrays to an image in memory, large
// arrays go straight to the disk, and close() copies the image into the gaps. So the large arrays need no
// lock, and HDF5 never meets a full disk, at which 1.10 cannot close a file and crashes when the process
// ends.
struct Hdf5File::Impl {
  Hdf5Check check;
  RawData raw;
  std::optional<RawData> image;                                  // of a file that is being written
  Hdf5Handle file;                                               // of the image, or of the file that is read
  std::vector<std::pair<std::uint64_t, std::uint64_t>> on_disk;  // [begin, end) that `raw` has, in this order

  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void copy_image() const;

  Hdf5Handle open_object(const std::string& path) const;
  // The string of a fixed-length string attribute; nullopt: absent, or of another type.
  std::optional<std::string> string_attribute(hid_t object, const std::string& name) const;
};

struct Hdf5Dataset::Impl {
  std::shared_ptr<const Hdf5File::Impl> file;
  std::string path;
  Hdf5Handle dataset;
  std::vector<std::int64_t> shape;
  Kind kind = Kind::other;
  std::optional<DType> dtype;
  std::string type_name;
  std::optional<std::uint64_t>
      offset;  // where the bytes lie in the file, where memory and file have the same layout

  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  std::string where() const { return file->check.file() + ": data set " + path; }
  // Elements of `rows` rows; throws CorruptInput where no memory could hold them.
  std::size_t elements(std::int64_t rows) const;
};

}  // namespace farandole
