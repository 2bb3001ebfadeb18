// Reads the fields of one event of a Chrome trace. Events in exactly the form in which our trace writer or
// PyTorch's profiler (Kineto) writes them are read several times as fast as by a JSON parser, which reads
// events of any other form. Used by trace_reader.cc.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <simdjson.h>
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
  std::optional<std::int64_t> pid, tid, start_ns, duration_ns;
  std::string_view category, name;

  std::string_view args_name, host, operation;
  std::optional<std::int64_t> rank, step;
  std::optional<std::uint64_t> sequence, communicator, bytes;
  TraceMessage message;
  std::string_view phase;
  bool named_thread = false;  // tid is a text
  // The visitor does not want the event, so fields after kind and category were not read.
  bool unwanted = false;
  bool has_args = false;  // at least one argument was read

  // Resets the fields. Arguments are cleared only if there were any, because most events have none.
  void clear();
};

// Throws: EventDamage if `error` is not SUCCESS.
inline void check_json(simdjson::error_code error) {
  if (error != simdjson::SUCCESS) throw EventDamage{simdjson::error_message(error)};
}

// If the visitor does not want the event, reads only the fields that tell this. Keys must be written
// without escapes, as programs write them. Texts are valid as long as the parser's document and the
// text that it parses.
// Throws: EventDamage if a field is damaged.
void read_fields(simdjson::ondemand::object& object, const TraceVisitor& visitor, EventFields& fields);

// As above for the event's object `args` alone. `args` is JSON text followed by simdjson's readable padding.
// `fields` already holds the other fields.
void read_args(std::string_view args, simdjson::ondemand::parser& parser, EventFields& fields);

// An event as the trace writer writes it (event.h).
struct OwnEvent {
  enum class Kind : std::uint8_t { span, instant, flow };
  Kind kind = Kind::span;
  TraceSpan span;  // instant: its thread, name, start_ns and bytes; flow: empty
};

// Reads the event that begins at `at` and returns the position after its closing bracket. Returns
// nullptr if a JSON parser must read the event: if it is of another kind or form, is damaged, does not
// end before `end`, or contains escapes or non-ASCII characters. At least TraceCursor::padding bytes
// after `end` must be readable.
const char* read_own_event(const char* at, const char* end, OwnEvent& event);

// Reads an event of Kineto, which has several lines. It begins at `at`; returns the position after its
// closing bracket. Fills `fields` except for the arguments; `args` becomes the JSON text of that object, or
// empty. Returns nullptr if a JSON parser must read the event: if it is not a span or flow, has another form,
// does not end before `end`, or has texts with escapes or non-ASCII characters. Of unwanted events and of
// arguments, only the indentation of the lines is checked. At least TraceCursor::padding bytes after `end`
// must be readable. Source: libkineto/src/output_json.cpp of PyTorch 2.
const char* read_kineto_event(const char* at, const char* end, const TraceVisitor& visitor,
                              EventFields& fields, std::string_view& args);

// Converts "1234.567" microseconds to 1234567 ns exactly; further decimals are rounded to nearest.
// std::nullopt if the text is not a JSON number or does not fit.
std::optional<std::int64_t> nanoseconds_of(std::string_view microseconds);

}  // namespace farandole
