// Reads the fields of one event of a Chrome trace from JSON. Used by trace_reader.cc.
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

}  // namespace farandole
