// One checkpoint as an HDF5 file: every array a data set with an XXH3 checksum, attributes format_version,
// step, epoch, world_size, config, score on the root. Usable from any thread (HDF5 itself is serialized
// here).
#pragma once

#include <filesystem>

#include "farandole/checkpoint/snapshot.h"

namespace farandole {

inline constexpr int checkpoint_format_version = 1;

// Writes beside `file`, then publishes it atomically. Throws Error; then `file` is as it was.
void write_checkpoint(const std::filesystem::path& file, const Snapshot& snapshot);

// The first half of that, for who measures the halves: writes `file` itself, unpublished. Throws Error; then
// remove it.
void write_unpublished_checkpoint(const std::filesystem::path& file, const Snapshot& snapshot);

// Reads and verifies every checksum. Throws UserError where `file` does not exist, CorruptInput (file, data
// set, reason) where it is damaged, no checkpoint, or of a newer format.
Snapshot read_checkpoint(const std::filesystem::path& file);

// As above, but the arrays come without their bytes, which are neither read nor verified; everything else is.
Snapshot read_checkpoint_header(const std::filesystem::path& file);

// Verifies as read_checkpoint does, with the memory of the largest array.
void verify_checkpoint(const std::filesystem::path& file);

}  // namespace farandole
