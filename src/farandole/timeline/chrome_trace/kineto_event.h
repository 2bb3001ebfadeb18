// Reads an event in exactly the form in which PyTorch's profiler (Kineto) writes it, on several lines. This
// is several times as fast as a JSON parser, which reads events of any other form.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string_view>

#include "farandole/timeline/chrome_trace/event_fields.h"

namespace farandole {

// Reads the event that begins at `at` and returns the position after its closing bracket. Fills `fields`
// except for the arguments; `args` becomes the JSON text of that object, or empty. Returns nullptr if a JSON
// parser must read the event: if it is not a span or flow, has another form, does not end before `end`, or
// has texts with escapes or non-ASCII characters. Of unwanted events and of arguments, only the indentation
// of the lines is checked. At least TraceCursor::padding bytes after `end` must be readable. Source:
// libkineto/src/output_json.cpp of PyTorch 2.
const char* read_kineto_event(const char* at, const char* end, const TraceVisitor& visitor,
                              EventFields& fields, std::string_view& args);

}  // namespace farandole
