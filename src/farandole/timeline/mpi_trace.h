// How MPI calls of the program get into a timeline. The library pmpi/, which is preloaded if MPI calls are to
// be recorded, finds its sink here. The library and the program may contain different builds of the timeline,
// so only plain C functions and plain values pass between them.
#pragma once

#include <cstddef>

#include "farandole/timeline/event.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// Thread safety: any thread may call this at any time.
struct MpiTraceSink {
  static constexpr std::size_t span_bytes = 64;

  Timeline* timeline;
  // Begins a span in the caller's span_bytes bytes, which must be aligned to 8. Returns false if nothing is
  // recorded; the caller must then not call end(). `name` is a string literal.
  bool (*begin)(Timeline* timeline, Category category, const char* name, void* span) noexcept;
  void (*end)(void* span, const MpiCall& what) noexcept;
};

MpiTraceSink sink_into(Timeline& timeline);

// A function of the preloaded library. Its digit must change together with MpiTraceSink and MpiCall. After a
// call with nullptr, no calls are recorded.
extern "C" void farandole_trace_mpi_calls_3(const MpiTraceSink* sink);

// If the library is preloaded, sends the MPI calls to `timeline` during the lifetime of this object.
// Thread safety: none; use from one thread at a time. No other thread may be in an MPI call while
// the destructor runs.
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
