#include "farandole/timeline/mpi_trace.h"

#include <dlfcn.h>
#include <new>

namespace farandole {
namespace {

class MpiSpan : public Span {
 public:
  using Span::live;
  using Span::Span;
  void end(const MpiCall& what) noexcept { Span::end(what); }
};
static_assert(sizeof(MpiSpan) <= MpiTraceSink::span_bytes && alignof(MpiSpan) <= 8);

bool begin(Timeline* timeline, Category category, const char* name, void* memory) noexcept {
  return (::new (memory) MpiSpan(*timeline, category, name))->live();
}

void end(void* memory, const MpiCall& what) noexcept {
  auto* const span = static_cast<MpiSpan*>(memory);
  span->end(what);
  span->~MpiSpan();
}

// If the library is preloaded, it is in the process before main() begins.
void send_calls_to(const MpiTraceSink* sink) {
  if (void* const found = ::dlsym(RTLD_DEFAULT, "farandole_trace_mpi_calls_3"); found != nullptr)
    reinterpret_cast<decltype(&farandole_trace_mpi_calls_3)>(found)(sink);
}

}  // namespace

MpiTraceSink sink_into(Timeline& timeline) {
  return {&timeline, &begin, &end};
}

MpiTrace::MpiTrace(Timeline& timeline) : sink_(sink_into(timeline)) {
  send_calls_to(&sink_);
}

MpiTrace::~MpiTrace() {
  send_calls_to(nullptr);
}

}  // namespace farandole
