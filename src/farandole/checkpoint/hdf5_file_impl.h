// The state that Hdf5File and Hdf5Dataset share: the open file and its check. Private to their sources.
// Thread safety: none; use from one thread at a time. The caller must hold the Hdf5Lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/checkpoint/hdf5_handle.h"
#include "farandole/checkpoint/raw_data.h"
#include "farandole/checkpoint/snapshot.h"

namespace farandole {

constexpr std::size_t piece_bytes = Digester::piece_bytes;  // For SeePiece.

// A new file is written in two parts. HDF5's core driver writes the metadata to an image in memory. Arrays are
// written directly to the disk. close() copies the image into the gaps. So arrays need no lock and no memory,
// and HDF5 never meets a full disk. This matters because HDF5 1.10 cannot close a file on a full disk and
// crashes when the process ends.
struct Hdf5File::Impl {
  Hdf5Check check;
  RawData raw;
  // The begin of a file that is being written, up to its last metadata. The arrays in it are holes.
  std::unique_ptr<std::vector<std::byte>> image;
  Hdf5Handle file;  // the image, or the file that is read
  // Ranges [begin, end) of the arrays that `raw` contains.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> on_disk;

  void write(std::uint64_t offset, std::span<const std::byte> bytes, const SeePiece& see);
  void copy_image(std::uint64_t file_bytes);

  Hdf5Handle open_object(const std::string& path) const;
  // The value of a fixed-length string attribute; std::nullopt if it does not exist or has another type.
  std::optional<std::string> string_attribute(hid_t object, const std::string& name) const;
};

struct Hdf5Dataset::Impl {
  std::shared_ptr<const Hdf5File::Impl> file;
  std::string path;
  Hdf5Handle dataset;
  std::vector<std::int64_t> shape;
  std::int64_t chunk_rows = 1;
  Kind kind = Kind::other;
  std::optional<DType> dtype;
  std::string type_name;
  // Offset of the bytes in the file; set only if memory and file have the same layout.
  std::optional<std::uint64_t> offset;

  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  std::string where() const { return file->check.file() + ": data set " + path; }
  // The number of elements of `rows` rows.
  // Throws: CorruptInput if they cannot fit into any memory.
  std::size_t elements(std::int64_t rows) const;
};

// Throws: CorruptInput if the file is damaged.
std::shared_ptr<const Hdf5Dataset::Impl> describe_dataset(std::shared_ptr<const Hdf5File::Impl> file,
                                                          Hdf5Handle dataset, const std::string& path);

}  // namespace farandole
