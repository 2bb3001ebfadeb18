// The fields of one event of a Chrome trace, from JSON. Used by trace_reader.cc; one thread per call.
#pragma once

#include <cstdint>
#include <optional>
#include <simdjson.h>
#include <string>
#include <string_view>

#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

// Why one event is left out.
struct EventDamage {
  std::string why;
};

// All that any kind of event may carry; which of it must be there depends on the kind.
struct EventFields {
  char kind = 0;
  std::optional<std::int64_t> pid, tid, start_ns, duration_ns;
  std::string_view category, name;

  std::string_view args_name, host, operation;
  std::optional<std::int64_t> rank, step;
  std::optional<std::uint64_t> sequence, communicator, bytes;
  std::optional<double> value;
  TraceMessage message;
  std::string_view phase;
  bool named_thread = false;  // tid is a text
  bool unwanted = false;      // nobody takes it: the fields behind kind and category were not read
  bool has_args = false;      // of which anything was read

  // As new: most events have no arguments that are read, and need not be cleared of them.
  void clear();
};

// Throws EventDamage.
inline void check_json(simdjson::error_code error) {
  if (error != simdjson::SUCCESS) throw EventDamage{simdjson::error_message(error)};
}

// Where the visitor does not want the event, only those that say so. Keys count as programs write them,
// without escapes. Texts are valid as long as the parser's document and what it was made of. Throws
// EventDamage.
void read_fields(simdjson::ondemand::object& object, const TraceVisitor& visitor, EventFields& fields);

// As above, of the event's object `args` alone: JSON text, behind which simdjson's padding is readable.
// `fields` holds the others.
void read_args(std::string_view args, simdjson::ondemand::parser& parser, EventFields& fields);

}  // namespace farandole
