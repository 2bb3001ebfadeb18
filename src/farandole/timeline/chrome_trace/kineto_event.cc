// Reads the events of PyTorch's profiler.
#include <cstddef>
#include <cstring>

#include "farandole/timeline/chrome_trace/event_fields.h"
#include "farandole/timeline/chrome_trace/trace_cursor.h"

namespace farandole {
namespace {

// Limits the search for the end of an event, which may otherwise go on to the end of the trace.
constexpr std::ptrdiff_t longest_read_event = 64 << 10;

// Goes from within a line to the position after the line `closing`. All lines before it must start with
// `indented`, and `closing` is less indented. Returns nullptr if another line has a different indentation or
// if `closing` is missing.
template <std::size_t n, std::size_t m>
const char* behind_lines(const char* at, const char* end, const char (&indented)[n],
                         const char (&closing)[m]) {
  while (at != nullptr && at < end) {
    at = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
    if (at == nullptr) break;
    if (std::memcmp(at + 1, closing, m - 1) == 0) return at + m <= end ? at + m : nullptr;
    if (std::memcmp(at + 1, indented, n - 1) != 0) break;
    at += n;
  }
  return nullptr;
}

const char* behind_event(const char* at, const char* end) {
  return behind_lines(at, end, "    ", "  }");
}

}  // namespace

const char* read_kineto_event(const char* at, const char* end, const TraceVisitor& visitor,
                              EventFields& fields, std::string_view& args) {
  fields.clear();
  args = {};
  if (end - at > longest_read_event) end = at + longest_read_event;
  TraceCursor cursor(at, end);
  cursor.expect("{\n    \"ph\": \"");
  if (!cursor.skip("X\", \"cat\": \"")) {
    fields.unwanted =
        cursor.skip("s\", \"id\": ") || cursor.skip("f\", \"id\": ") || cursor.skip("t\", \"id\": ");
    fields.kind = 's';
    return fields.unwanted ? behind_event(cursor.at(), end) : nullptr;
  }
  fields.kind = 'X';
  fields.category = cursor.text();
  fields.unwanted = cursor.at() != nullptr && !visitor.wants(fields.category);
  if (fields.unwanted) return behind_event(cursor.at(), end);
  cursor.expect(", \"name\": \"");
  fields.name = cursor.text();
  cursor.expect(", \"pid\": ");
  fields.pid = static_cast<std::int64_t>(cursor.digits());
  cursor.expect(", \"tid\": ");
  fields.tid = static_cast<std::int64_t>(cursor.digits());
  cursor.expect(",\n    \"ts\": ");
  fields.start_ns = cursor.time();
  cursor.expect(", \"dur\": ");
  fields.duration_ns = cursor.time();
  const char* behind = cursor.at();
  if (cursor.skip(",\n    \"args\": {\n")) {
    const char* const lines = cursor.at();
    behind = lines != nullptr ? behind_lines(lines - 1, end, "      ", "    }") : nullptr;
    if (behind != nullptr) args = {lines - 2, behind};
  }
  TraceCursor closing(behind, end);
  closing.expect("\n  }");
  return closing.at();
}

}  // namespace farandole
