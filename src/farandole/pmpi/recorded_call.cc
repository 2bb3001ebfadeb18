#include "farandole/pmpi/recorded_call.h"

namespace farandole::pmpi {

constinit std::atomic<const MpiTraceSink*> sink{nullptr};
constinit thread_local bool RecordedCall::inside_ = false;

RecordedCall::RecordedCall(Category category, const char* name) noexcept
    : sink_(sink.load(std::memory_order_acquire)) {
  if (sink_ == nullptr || inside_ || !sink_->begin(sink_->timeline, category, name, span_)) return;
  begun_ = inside_ = true;
}

}  // namespace farandole::pmpi

extern "C" void farandole_trace_mpi_calls_2(const farandole::MpiTraceSink* sink) {
  farandole::pmpi::sink.store(sink, std::memory_order_release);
}
