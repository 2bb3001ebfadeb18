// Reads one event of a Chrome trace from JSON text. One reader serves the traces of all programs: keys may
// stand in any order, with any white space between them. It goes over the text once, and values that nobody
// needs are passed over without being parsed. Used by trace_reader.cc.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

// The reason why one event is left out.
struct EventDamage {
  std::string why;
};

// All fields that an event of any kind may have. Which of them are required depends on the kind.
struct EventFields {
  char kind = 0;
  TraceSpan span;  // without `collective` and `bytes`
  bool has_pid = false, has_tid = false, has_start = false, has_duration = false;
  std::string_view pid_text;  // if a text identifies the process, whose pid is then negative
  // The visitor does not want the event, so fields after kind and category were not read.
  bool unwanted = false;

  std::optional<std::uint64_t> sequence, communicator, bytes;  // arguments
  std::string_view args_name, host;
  std::optional<std::int64_t> rank;
  std::optional<double> value;  // of a counter
  // One of those that only few events have, in `span.message` or in the line above.
  bool has_rare_args = false;

  // Resets the fields for the next event. The rare arguments are cleared only if there were any.
  void clear();
};

// What is known of the events of one category.
struct TraceCategory {
  bool used = false;  // false: the place is empty
  std::string text;
  Category category = Category::other;
  bool wanted = true;          // by the visitor
  std::string prefix = {};     // of the names of wanted spans
  bool has_idle_args = false;  // the arguments are not needed
  bool is_runtime = false;     // of PyTorch's profiler; of the arguments, only the correlation is needed
  bool is_kernel = false;      // of PyTorch's profiler

  bool wants(std::string_view name) const { return prefix.empty() || name.starts_with(prefix); }
};

class EventReader {
 public:
  static constexpr std::size_t padding = 32;

  // The visitor is asked at least once about each category whether it wants it.
  explicit EventReader(TraceVisitor& visitor) : visitor_(visitor) {}

  // Reads the object that begins at `text`. A byte 0 must follow the text, and `padding` bytes
  // must be readable. Returns the position behind the object.
  // The fields are valid until the next call, as long as the text is. If the visitor does not want the event,
  // only the fields are read that tell this. Keys must be written without escapes, as programs write them.
  // Throws: EventDamage if the object is damaged, or does not end before the byte 0. Damage within a value
  // that is not needed may remain unnoticed.
  const char* read(const char* text);
  EventFields& fields() { return fields_; }

 private:
  const TraceCategory& category_named(std::string_view text);

  TraceVisitor& visitor_;
  EventFields fields_;
  std::array<TraceCategory, 64> categories_;
  std::deque<std::string> unescaped_;  // the event's texts that had escapes
};

// Converts "1234.567" microseconds to 1234567 ns exactly; further decimals are rounded to nearest. `text`
// must end with a byte 0, or with another character that is in no number. Moves it behind the number.
// std::nullopt if no JSON number begins there or it does not fit.
std::optional<std::int64_t> nanoseconds_of(const char*& text);

}  // namespace farandole
