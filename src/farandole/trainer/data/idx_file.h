// MNIST's IDX files, gzip or not: images (magic 2051) and labels (magic 2049). Usable from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace farandole {

struct IdxImages {
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::uint8_t> pixels;  // count * rows * columns, row-major, 0 … 255
};

// Both throw UserError where the file cannot be opened, CorruptInput (file, offset, expected and found) where
// it is not what its header promises. Memory follows what the file really holds, not what its header claims.
// Offsets are those of the unpacked file.
IdxImages read_idx_images(const std::filesystem::path& file);

// Labels are 0 … classes - 1.
std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path& file, int classes = 10);

}  // namespace farandole
