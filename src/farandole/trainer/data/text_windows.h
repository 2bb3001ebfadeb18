// Windows of bytes with their next bytes, from a text in memory.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

// Sample i is x = bytes [i·c, i·c + c) of the stretch; y is x shifted by one byte.
class TextWindows final : public Dataset {
 public:
  // `stretch` must lie within *text and hold at least context + 1 bytes.
  TextWindows(std::shared_ptr<const std::vector<std::uint8_t>> text, std::span<const std::uint8_t> stretch,
              std::int64_t context);

  std::int64_t size() const override { return size_; }
  Batch get(std::span<const std::int64_t> indices) const override;

 private:
  std::shared_ptr<const std::vector<std::uint8_t>> text_;
  std::span<const std::uint8_t> stretch_;
  std::int64_t context_;
  std::int64_t size_;
};

// Holds out the last `held_out` of the bytes.
// Throws: UserError if the training bytes or the held-out bytes are too few for one window.
DataSplit split_text(std::vector<std::uint8_t> bytes, std::int64_t context, double held_out,
                     const std::string& source);

struct Text {
  std::vector<std::uint8_t> bytes;
  int files = 0;
};

// Reads the regular files of a folder, sorted by name, without subfolders and dot files. A file with several
// names (links) is read once.
// Throws: UserError if no file can be read.
Text read_text(const std::filesystem::path& path);

}  // namespace farandole
