// One checkpoint as an HDF5 file. schema.h describes its contents.
// Thread safety: any thread may call this at any time. Calls into HDF5 are serialized here.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "farandole/checkpoint/snapshot.h"

namespace farandole {

// Path of the first array with a NaN or an infinity; empty if there is none.
std::string find_nonfinite(const Snapshot& snapshot);

// Writes a temporary file beside `file`, calls `written`, and publishes the file atomically. Returns what
// find_nonfinite() would, but reads each array only once.
// Throws: Error if this fails. `file` is then unchanged.
std::string write_checkpoint(
    const std::filesystem::path& file, const Snapshot& snapshot,
    const std::function<void()>& written = [] {});

// Gives the memory into which the bytes of an array shall be read, of exactly their size; empty if the
// snapshot shall keep them in memory of its own.
using ArrayMemory = std::function<std::span<std::byte>(const Array& array)>;

// Reads a checkpoint and verifies every checksum. Arrays whose bytes are read into given memory have none in
// the snapshot. After an exception, the given memory has unspecified contents.
// Throws: UserError if `file` does not exist.
// Throws: CorruptInput (file, data set, reason) if it is damaged, is not a checkpoint, or has a newer format.
Snapshot read_checkpoint(const std::filesystem::path& file, const ArrayMemory& memory = {});

// As read_checkpoint(), but the bytes of the arrays are neither read nor verified.
Snapshot read_checkpoint_header(const std::filesystem::path& file);

// Reads the arrays of a checkpoint one by one, for files that do not fit into memory.
class CheckpointReader {
 public:
  struct Impl;

  // Throws: as read_checkpoint_header().
  explicit CheckpointReader(const std::filesystem::path& file);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  const Snapshot& header() const;  // without the bytes of the arrays
  // Returns an array of the header with its bytes.
  // Throws: CorruptInput if they are damaged.
  Array read(std::size_t index) const;

 private:
  std::unique_ptr<Impl> impl_;
};

// Verifies a checkpoint as read_checkpoint() does, and returns it without the bytes of the arrays. Needs only
// memory for the largest array.
Snapshot verify_checkpoint(const std::filesystem::path& file);

}  // namespace farandole
