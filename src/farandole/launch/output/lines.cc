#include "farandole/launch/output/lines.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>

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

std::string time_of_day() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm local{};
  localtime_r(&now.tv_sec, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", local.tm_hour, local.tm_min, local.tm_sec,
                     now.tv_nsec / 1'000'000);
}

std::string LineFormatter::line(std::string_view text) const {
  return fmt::format("{}{}\n", mark_(), text);
}

std::string LineFormatter::format(std::string_view piece) {
  const bool ends = piece.ends_with('\n');
  if (ends) piece.remove_suffix(1);
  const bool returns = piece.ends_with('\r');
  if (returns) piece.remove_suffix(1);
  if (!ends && (returns || redrawn_)) {  // A state of a line that will be redrawn.
    redrawn_ = true;
    if (piece.empty()) return "";
    if (redraws_ == Redraws::last) {
      held_ = piece;
      return "";
    }
    shown_ = true;
    return line(piece);
  }
  const bool closes = std::exchange(redrawn_, false) && piece.empty();
  const std::string last = std::exchange(held_, "");
  const bool shown = std::exchange(shown_, false);
  if (closes && shown) return "";
  return line(closes ? std::string_view(last) : piece);
}

std::string LineFormatter::finish() {
  redrawn_ = shown_ = false;
  const std::string last = std::exchange(held_, "");
  return last.empty() ? "" : line(last);
}

}  // namespace farandole
