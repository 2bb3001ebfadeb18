// Splits the output of a program, which arrives in pieces of any size, into lines.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace farandole {

// The joined pieces equal the output byte for byte. A piece ends after "
// " or "\r
// ", after a lone "\r" (progress bars use it), after max_bytes (this limits memory), and at the end of the
// output. While the program redraws a line with "\r", the text so far is also passed on at the end of each
// feed, so that the newest state of a progress bar is shown in time.
class LineSplitter {
 public:
  using Take = std::function<void(std::string_view)>;

  explicit LineSplitter(Take take, std::size_t max_bytes = 65536)
      : take_(std::move(take)), max_bytes_(max_bytes) {}

  void feed(std::string_view bytes);
  void finish();

 private:
  void take_pending();

  Take take_;
  std::size_t max_bytes_;
  std::string pending_;
  bool redrawn_ = false;  // A lone '\r' has arrived since the last '\n'.
};

}  // namespace farandole
