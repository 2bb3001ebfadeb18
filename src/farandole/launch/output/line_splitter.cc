#include "farandole/launch/output/line_splitter.h"

#include <algorithm>

namespace farandole {

void LineSplitter::take_pending() {
  if (pending_.empty()) return;
  take_(pending_);
  pending_.clear();
}

void LineSplitter::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    auto length = bytes.find_first_of("\r\n");
    bool cut = length != std::string_view::npos;
    if (cut) {
      const bool newline = bytes.substr(length).starts_with('\n') || bytes.substr(length).starts_with("\r\n");
      redrawn_ = !newline;
      length += bytes.substr(length).starts_with("\r\n") ? 2 : 1;
    }
    length = std::min(length, bytes.size());
    const auto room = max_bytes_ - pending_.size();
    if (length > room) {
      length = room;
      cut = true;
    }
    pending_.append(bytes.substr(0, length));
    bytes.remove_prefix(length);
    if (cut || pending_.size() == max_bytes_) take_pending();
  }
  if (redrawn_) take_pending();
}

void LineSplitter::finish() {
  take_pending();
}

}  // namespace farandole
