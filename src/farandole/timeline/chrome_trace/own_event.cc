// Reads the trace writer's events.
#include <limits>

#include "farandole/timeline/chrome_trace/event_fields.h"
#include "farandole/timeline/chrome_trace/trace_cursor.h"

namespace farandole {
namespace {

void read_collective(TraceCursor& cursor, TraceSpan& span) {
  span.operation = cursor.text();
  cursor.expect(",\"communicator\":");
  const auto communicator = cursor.digits();
  cursor.expect(",\"sequence\":");
  const auto sequence = cursor.digits();
  cursor.expect(",\"bytes\":");
  const auto bytes = cursor.digits();
  if (communicator > std::numeric_limits<std::uint16_t>::max() ||
      sequence > std::numeric_limits<std::uint32_t>::max())
    return cursor.fail();
  span.collective = {static_cast<std::uint32_t>(sequence), static_cast<std::uint16_t>(communicator), bytes};
}

// Reads the number of bytes and the communicator's ranks, if there are any.
// The other arguments are only for people.
void read_mpi_call(TraceCursor& cursor, TraceSpan& span) {
  if (cursor.skip("\"bytes\":")) {
    span.bytes = cursor.digits();
    if (!cursor.skip(",")) return;
  }
  do {
    if (cursor.skip("\"ranks\":")) {
      span.message.ranks = cursor.digits();
      continue;
    }
    if (!cursor.skip("\"peer\":") && !cursor.skip("\"root\":") && !cursor.skip("\"tag\":") &&
        !cursor.skip("\"requests\":"))
      cursor.expect("\"polls\":");
    cursor.digits();
  } while (cursor.skip(","));
}

// Reads from after the text ,"name":" up to the event's time.
void read_place(TraceCursor& cursor, TraceSpan& span) {
  span.name = cursor.text();
  cursor.expect(",\"pid\":");
  span.pid = static_cast<std::int64_t>(cursor.digits());
  cursor.expect(",\"tid\":");
  span.tid = static_cast<std::int64_t>(cursor.digits());
  cursor.expect(",\"ts\":");
  span.start_ns = cursor.time();
}

void read_span(TraceCursor& cursor, TraceSpan& span) {
  span.category_text = cursor.text();
  span.category = category_of(span.category_text).value_or(Category::other);
  cursor.expect(",\"name\":\"");
  read_place(cursor, span);
  cursor.expect(",\"dur\":");
  span.duration_ns = cursor.time();
  span.step.reset();
  span.collective.reset();
  span.phase.reset();
  span.operation = {};
  span.bytes = 0;
  span.message.ranks.reset();
  if (cursor.skip(",\"args\":{")) {
    bool more = true;
    if (cursor.skip("\"step\":")) {
      span.step = static_cast<std::int64_t>(cursor.digits());
      more = cursor.skip(",");
    }
    if (more && cursor.skip("\"phase\":\"")) {
      span.phase = category_of(cursor.text());
      more = cursor.skip(",");
    }
    if (more && cursor.skip("\"operation\":\"")) {
      read_collective(cursor, span);
    } else if (more) {
      read_mpi_call(cursor, span);
    }
    cursor.expect("}");
  }
}

void read_instant(TraceCursor& cursor, TraceSpan& span) {
  cursor.expect("\"name\":\"");
  read_place(cursor, span);
  span.bytes = 0;
  if (!cursor.skip(",\"args\":{\"bytes\":")) return;
  span.bytes = cursor.digits();
  cursor.expect("}");
}

void read_flow(TraceCursor& cursor) {
  cursor.expect("\"name\":\"collective\",\"id\":");
  cursor.digits();
  cursor.expect(",\"pid\":");
  cursor.digits();
  cursor.expect(",\"tid\":");
  cursor.digits();
  cursor.expect(",\"ts\":");
  cursor.time();
}

}  // namespace

const char* read_own_event(const char* at, const char* end, OwnEvent& event) {
  using enum OwnEvent::Kind;
  TraceCursor cursor(at, end);
  cursor.expect("{\"ph\":\"");
  if (cursor.skip("X\",\"cat\":\"")) {
    event.kind = span;
    read_span(cursor, event.span);
  } else if (cursor.skip("i\",\"s\":\"t\",\"cat\":\"other\",")) {
    event.kind = instant;
    read_instant(cursor, event.span);
  } else if (cursor.skip("s\",\"cat\":\"flow\",") || cursor.skip("f\",\"bp\":\"e\",\"cat\":\"flow\",")) {
    event.kind = flow;
    read_flow(cursor);
  } else {
    return nullptr;
  }
  cursor.expect("}");
  return cursor.at();
}

}  // namespace farandole
