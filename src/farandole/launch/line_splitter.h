// Cuts a program's output into lines as it arrives, in pieces of any size. One splitter belongs to one
// thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace farandole {

// The pieces, joined, are the output, byte for byte. A piece ends after "\n" or "\r\n"; after a lone "\r", as
// progress bars use it; after max_bytes, so that memory stays bounded; and at the output's end. While a line
// is being redrawn with "\r", what has arrived is taken at the end of each feed: nothing else would show the
// bar's newest state in time.
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
  bool redrawn_ = false;  // a lone '\r' came since the last '\n'
};

}  // namespace farandole
