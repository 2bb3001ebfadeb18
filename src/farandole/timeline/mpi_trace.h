// How MPI calls of the program itself get into a timeline: pmpi/, a library that is preloaded where they are
// to be recorded, looks for its sink here. The two may hold different builds of the timeline, so that plain C
// functions and plain values are all that passes between them.
#pragma once

#include <cstddef>

#include "farandole/timeline/event.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// Its functions may be called from any thread.
struct MpiTraceSink {
  static constexpr std::size_t span_bytes = 64;

  Timeline* timeline;
  // Begins a span in the caller's span_bytes bytes, aligned to 8. False: nothing is recorded, nothing is to
  // be ended. `name` is a string literal.
  bool (*begin)(Timeline* timeline, Category category, const char* name, void* span) noexcept;
  void (*end)(void* span, const MpiCall& what) noexcept;
};

MpiTraceSink sink_into(Timeline& timeline);

// Of the preloaded library; the digit is to change with MpiTraceSink and MpiCall. Null: to none, from now on.
extern "C" void farandole_trace_mpi_calls_1(const MpiTraceSink* sink);

// Sends the calls to `timeline` from its construction to its destruction, where the library is preloaded. At
// its end no other thread may be in an MPI call.
class MpiTrace {
 public:
  explicit MpiTrace(Timeline& timeline);
  ~MpiTrace();
  MpiTrace(const MpiTrace&) = delete;
  MpiTrace& operator=(const MpiTrace&) = delete;

 private:
  const MpiTraceSink sink_;
};

}  // namespace farandole
