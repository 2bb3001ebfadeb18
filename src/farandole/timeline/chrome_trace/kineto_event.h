// Reads an event in exactly the form in which PyTorch's profiler (Kineto) writes it, several lines of it:
// several times as quick as a JSON parser, which reads the rest. A plain function.
#pragma once

#include <string_view>

#include "farandole/timeline/chrome_trace/event_fields.h"

namespace farandole {

// Of the event that begins at `at`: the place behind its closing bracket, with `fields` filled but for what
// is in `args`, the JSON text of that object, or empty; nullptr where the event is no span or flow, of any
// other form, not over at `end`, or has texts that are not all printable ASCII without escapes: then ask a
// JSON parser. Of what the visitor does not want, and of args, only the lines' indentation is looked at. At
// least TraceCursor::padding bytes behind `end` must be readable. Source: libkineto/src/output_json.cpp of
// PyTorch 2.
const char* read_kineto_event(const char* at, const char* end, const TraceVisitor& visitor,
                              EventFields& fields, std::string_view& args);

}  // namespace farandole
