// Records one MPI call of the program into the timeline. An object is on the stack of the thread
// that makes the call.
// Thread safety: any thread may call this at any time. Each call has its own object.
#pragma once

#include <atomic>
#include <cstddef>
#include <mpi.h>
#include <type_traits>

#include "farandole/pmpi/shapes.h"
#include "farandole/timeline/mpi_trace.h"

namespace farandole::pmpi {

// The one global variable of the preloaded library. The program calls the library's functions by MPI's names,
// so no object can be passed to them. nullptr means that nothing is recorded. The thread that starts or ends
// the recording sets it.
extern constinit std::atomic<const MpiTraceSink*> sink;

class RecordedCall {
 public:
  RecordedCall(Category category, const char* name) noexcept;
  // If an error handler of the program or the end of its thread leaves a call, the call
  // is recorded without details.
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
  // True while this thread is in a recorded call. MPI sometimes calls its own functions (as ROMIO
  // does) and functions of the program that may call MPI. These inner calls belong to the outer call
  // and are not recorded.
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

// Calls `function` and records it with the details that `Shape` gives.
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
