// Reads an event in exactly the form in which our trace writer writes it (event.h): several times as quick as
// a JSON parser, which reads the rest. A plain function.
#pragma once

#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

struct OwnEvent {
  enum class Kind : std::uint8_t { span, instant, flow };
  Kind kind = Kind::span;
  TraceSpan span;  // instant: its thread, name, start_ns and bytes; flow: nothing
};

// Of the event that begins at `at`: the place behind its closing bracket, with `event` filled; nullptr where
// it is none of these, of any other form, unsound, not over at `end`, or not all in printable ASCII without
// escapes: then ask a JSON parser. At least TraceCursor::padding bytes behind `end` must be readable.
const char* read_own_event(const char* at, const char* end, OwnEvent& event);

}  // namespace farandole
