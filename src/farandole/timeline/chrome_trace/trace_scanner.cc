#include "farandole/timeline/chrome_trace/trace_scanner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr std::size_t window_bytes = std::size_t{512} << 10;
constexpr std::size_t least_window_bytes = std::size_t{192} << 10;
constexpr std::size_t max_value_bytes = std::size_t{256} << 20;
constexpr std::size_t max_event_bytes = std::size_t{1} << 20;
constexpr std::size_t max_other_data_bytes = std::size_t{4} << 20;
constexpr std::size_t not_found = std::numeric_limits<std::size_t>::max();

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

// Outside of strings, only these characters matter for splitting.
constexpr auto marks = [] {
  std::array<bool, 256> table{};
  for (const unsigned char c : {'{', '}', '[', ']', '"', ','}) table[c] = true;
  return table;
}();

std::string at_byte(std::uint64_t offset) {
  return " at byte " + std::to_string(offset);
}

}  // namespace

TraceWindow::TraceWindow(const std::filesystem::path& file) : buffer_(window_bytes) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(file, ignored)) file_ = InflatedFile::open(file);
  if (file_ == nullptr)
    throw UserError("trace " + file.string() + " cannot be read; give a run directory or a Chrome trace");
}

void TraceWindow::consume(std::size_t bytes) {
  begin_ += bytes;
  offset_ += bytes;
}

bool TraceWindow::refill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), data(), size());
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ + padding == buffer_.size()) buffer_.resize(2 * buffer_.size());
  const std::size_t room = buffer_.size() - padding - end_;
  const std::size_t got = file_->read(buffer_.data() + end_, room);
  end_ += got;
  buffer_[end_] = 0;
  at_end_ = got < room;
  return got > 0;
}

TraceScanner::TraceScanner(const std::filesystem::path& file) : window_(file) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  while (window_.size() < byte_order_mark.size() && window_.refill()) {
  }
  if (std::string_view(window_.data(), window_.size()).starts_with(byte_order_mark))
    window_.consume(byte_order_mark.size());
  if (!skip_space()) {
    const auto why = window_.damage().empty() ? "is empty" : "holds nothing readable: " + window_.damage();
    throw CorruptInput("trace " + file.string() + " " + why);
  }
  if (peek() != '[' && peek() != '{')
    throw CorruptInput("trace " + file.string() + " is not a Chrome trace: neither { nor [" +
                       at_byte(offset()));
  in_object_ = peek() == '{';
  window_.consume(1);
  if (in_object_ && !find_events())
    throw CorruptInput("trace " + file.string() + " has no array \"traceEvents\"; looked up to byte " +
                       std::to_string(offset()) + (damage_.empty() ? "" : ": " + damage_));
}

bool TraceScanner::skip_space() {
  for (;;) {
    std::size_t i = 0;
    while (i < window_.size() && is_space(window_.data()[i])) ++i;
    window_.consume(i);
    if (window_.size() > 0) return true;
    if (!window_.refill()) return false;
  }
}

void TraceScanner::stop(const std::string& why) {
  done_ = true;
  damage_ = (window_.damage().empty() ? why : window_.damage() + "; read") + at_byte(offset());
}

// The length of the value at the window's start;
// `not_found` if the stream ends before or a bracket is missing.
std::size_t TraceScanner::value_end(std::size_t max_bytes) {
  std::size_t i = 0;
  int depth = 0;
  bool in_string = false;
  for (;;) {
    const char* text = window_.data();
    const std::size_t size = window_.size();
    while (i < size) {
      if (in_string) {
        while (i < size && text[i] != '"' && text[i] != '\\') ++i;
        if (i >= size) break;
        if (text[i] == '\\') {
          i += 2;  // if beyond `size`, the next window continues after the escaped character
          continue;
        }
        in_string = false;
        ++i;
        if (depth == 0) return i;
        continue;
      }
      while (i < size && !marks[static_cast<unsigned char>(text[i])]) ++i;
      if (i >= size) break;
      const char c = text[i];
      if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (depth == 0) {
        return i;  // the comma or bracket after a number or word
      } else if (c != ',' && --depth == 0) {
        return i + 1;
      }
      ++i;
    }
    if (window_.size() > max_bytes || !window_.refill()) return not_found;
  }
}

// Consumes the value at the window's start. Returns it if it has up to `keep_bytes` bytes.
std::string TraceScanner::take_value(std::size_t keep_bytes) {
  const auto length = value_end(max_value_bytes);
  if (length == not_found) {
    stop("cut off in a value");
    return {};
  }
  std::string value;
  if (length <= keep_bytes) value.assign(window_.data(), length);
  window_.consume(length);
  return value;
}

// Consumes the key's value, and stores it if it is needed and undamaged.
void TraceScanner::take_value_of(const std::string& key) {
  auto* const kept = key == "\"otherData\""         ? &other_data_
                     : key == "\"distributedInfo\"" ? &distributed_info_
                                                    : nullptr;
  auto value = take_value(kept != nullptr ? max_other_data_bytes : 0);
  if (kept != nullptr && damage_.empty()) *kept = std::move(value);
}

// Goes from after the object's opening bracket, or after an earlier value, to after
// the bracket of traceEvents.
bool TraceScanner::find_events() {
  for (;;) {
    if (!skip_space()) break;
    if (peek() == ',') {
      window_.consume(1);
      continue;
    }
    if (peek() != '"') return false;
    const auto key = take_value(256);
    if (done_ || !skip_space()) return false;
    if (peek() != ':') {
      stop("no colon after a key");
      return false;
    }
    window_.consume(1);
    if (!skip_space()) break;
    if (key == "\"traceEvents\"" && peek() == '[') {
      window_.consume(1);
      return true;
    }
    take_value_of(key);
    if (done_) return false;
  }
  stop("cut off");
  return false;
}

// Reads the keys after the events. Only otherData is used; a second traceEvents is skipped as a value.
void TraceScanner::read_keys_behind() {
  done_ = true;
  if (!in_object_) return;
  while (skip_space() && peek() != '}') {
    if (peek() == ',') {
      window_.consume(1);
      continue;
    }
    if (peek() != '"') return stop("unexpected text after the events");
    const auto key = take_value(256);
    if (!damage_.empty()) return;
    if (!skip_space() || peek() != ':') return stop("no colon after a key");
    window_.consume(1);
    if (!skip_space()) break;
    take_value_of(key);
    if (!damage_.empty()) return;
  }
  if (window_.size() == 0) return stop("cut off after the events");
  window_.consume(1);
}

// The position within `length` bytes where a later line begins with an object, or `length` if
// there is none. Strings contain no raw newlines. So in a trace with one event per line, this is
// the next event after damage.
std::size_t TraceScanner::next_line(std::size_t length) const {
  const std::string_view text(window_.data(), length);
  for (auto at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    std::size_t begin = at + 1;
    while (begin < length && is_space(text[begin])) ++begin;
    if (begin < length && text[begin] == '{') return begin;
  }
  return length;
}

void TraceScanner::reject() {
  pending_ = next_line(pending_);
}

// Consumes the text between events. Returns false if no event begins: at the end, or before text that
// is not an event.
bool TraceScanner::begin_event() {
  window_.consume(std::exchange(pending_, 0));
  if (done_) return false;
  for (;;) {
    if (!skip_space()) {
      done_ = true;
      // A bare array may lack its closing bracket, because programs append to it until they end.
      if (in_object_ || !window_.damage().empty()) stop("cut off");
      return false;
    }
    if (peek() != ',') break;
    window_.consume(1);
  }
  if (peek() != ']') return true;
  window_.consume(1);
  read_keys_behind();
  return false;
}

std::optional<RawEvent> TraceScanner::next_text() {
  if (!begin_event() || peek() != '{') return std::nullopt;
  while (window_.size() < least_window_bytes && window_.refill()) {
  }
  return RawEvent{{window_.data(), window_.size()}, offset()};
}

std::optional<RawEvent> TraceScanner::next() {
  if (!begin_event()) return std::nullopt;
  const auto length = peek() == '{' ? value_end(max_event_bytes) : not_found;
  pending_ = length == not_found ? next_line(window_.size()) : length;
  if (length == not_found && pending_ == window_.size()) {
    stop(peek() == '{' ? "cut off in the event that begins" : "no event where one should begin");
    pending_ = 0;
    return std::nullopt;
  }
  return RawEvent{{window_.data(), pending_}, offset()};
}

}  // namespace farandole
