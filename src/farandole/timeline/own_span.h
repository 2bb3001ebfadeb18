// Reads a span or collective in exactly the form in which our trace writer writes it (event.h): several times
// as quick as a JSON parser, which reads the rest. A plain function.
#pragma once

#include "farandole/timeline/trace_reader.h"

namespace farandole {

// Of the event that begins at `at`: the place behind its closing bracket, with `span` filled; nullptr where
// it is of any other form, unsound, not over at `end`, or not all in printable ASCII without escapes: then
// ask a JSON parser. At least TraceCursor::padding bytes behind `end` must be readable.
const char* read_own_span(const char* at, const char* end, TraceSpan& span);

}  // namespace farandole
