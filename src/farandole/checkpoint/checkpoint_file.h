// One checkpoint as an HDF5 file: every array a data set with an XXH3 checksum, attributes format_version, step, epoch,
// world_size, config, score on the root. Usable from any thread (HDF5 itself is serialized here).
#pragma once

#include <filesystem>

#include "farandole/checkpoint/snapshot.h"

namespace farandole {

inline constexpr int checkpoint_format_version = 1;

// Writes beside `file`, then publishes it atomically. Throws Error; then `file` is as it was.
void write_checkpoint(const std::filesystem::path& file, const Snapshot& snapshot);

// Reads and verifies every checksum. Throws UserError where `file` does not exist, CorruptInput (file, data set, reason) where it is
// damaged, no checkpoint, or of a newer format.
Snapshot read_checkpoint(const std::filesystem::path& file);

}  // namespace farandole
