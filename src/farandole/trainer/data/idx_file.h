// Reads MNIST's IDX files, plain or gzip: images (magic 2051) and labels (magic 2049).
// Thread safety: any thread may call this at any time.
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

// Memory grows with the bytes that the file has, not with the size that its header declares. Offsets in
// messages are offsets in the decompressed file.
// Throws: UserError if the file cannot be opened; CorruptInput (with file, offset, expected and found value)
// if the contents do not match the header.
IdxImages read_idx_images(const std::filesystem::path& file);

// Labels are 0 to classes - 1.
std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path& file, int classes = 10);

}  // namespace farandole
