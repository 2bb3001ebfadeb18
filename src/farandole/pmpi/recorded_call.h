// One MPI call of the program on its way into the timeline. On the stack of the thread that makes the call.
#pragma once

#include <atomic>
#include <cstddef>
#include <mpi.h>
#include <type_traits>

#include "farandole/pmpi/shapes.h"
#include "farandole/timeline/mpi_trace.h"

namespace farandole::pmpi {

// The one place that a preloaded library needs: nobody could hand its functions, which the program calls by
// MPI's names, an object. Null: nothing is recorded. Set by the thread that starts or ends the recording.
extern constinit std::atomic<const MpiTraceSink*> sink;

class RecordedCall {
 public:
  RecordedCall(Category category, const char* name) noexcept;
  // A call that an error handler of the program, or the end of its thread, leaves is recorded as it is.
  ~RecordedCall() {
    if (!begun_) return;
    if (!ended_) end({});
    inside_ = false;
  }
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

  bool begun() const { return begun_; }
  void end(const MpiCall& what) noexcept {
    ended_ = true;
    sink_->end(span_, what);
  }

 private:
  // MPI calls itself now and then, as ROMIO does, and calls functions of the program that may call it: what
  // happens inside of a call belongs to that.
  static thread_local bool inside_;

  const MpiTraceSink* const sink_;
  bool begun_ = false;
  bool ended_ = false;
  alignas(8) std::byte span_[MpiTraceSink::span_bytes];
};

template <class Argument>
void give_status(Argument& argument, MPI_Status& own) {
  if constexpr (std::is_same_v<Argument, MPI_Status*>)
    if (argument == MPI_STATUS_IGNORE) argument = &own;
}

// Calls `function`, and records it as `Shape` describes it.
template <class Shape, class... Arguments>
int call(Category category, const char* name, int (*function)(Arguments...),
         std::type_identity_t<Arguments>... arguments) {
  if (sink.load(std::memory_order_acquire) == nullptr) return function(arguments...);
  RecordedCall recorded(category, name);
  if (!recorded.begun()) return function(arguments...);
  [[maybe_unused]] MPI_Status status;
  if constexpr (std::is_base_of_v<ReadsStatus, Shape>) (give_status(arguments, status), ...);
  const int result = function(arguments...);
  recorded.end(result == MPI_SUCCESS ? Shape::describe(arguments...) : Details());
  return result;
}

}  // namespace farandole::pmpi
