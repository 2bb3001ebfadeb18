// Windows of bytes with their next bytes, over a text in memory. Fetching is const and may be done from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

// Sample i: x = bytes [i·c, i·c + c) of the stretch, y = the same shifted by one.
class TextWindows final : public Dataset {
 public:
  // `stretch` lies within *text and holds at least context + 1 bytes.
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

// The last `held_out` of the bytes are held out. Throws UserError where training or held-out bytes make no
// window.
DataSplit split_text(std::vector<std::uint8_t> bytes, std::int64_t context, double held_out,
                     const std::string& source);

}  // namespace farandole
