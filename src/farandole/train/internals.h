// What is behind Session, Group and TensorCollectives, for Farandole's own programs, benchmarks and tests. The
// installed headers do not include this one.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "farandole/base/error.h"
#include "farandole/comm/mpi/mpi_job.h"
#include "farandole/comm/recording/recording.h"
#include "farandole/comm/recording/trace_requests.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/signal_event.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/comm/wrap/join_communicator.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/timeline/gpu/gpu_activity.h"
#include "farandole/timeline/timeline.h"
#include "farandole/train/fused_allreduce.h"
#include "farandole/train/group.h"
#include "farandole/train/session.h"
#include "farandole/train/tensor_collectives.h"

namespace farandole {

struct TensorCollectives::Internals {
  explicit Internals(std::unique_ptr<TracedCommunicator> traced = {}) { use(std::move(traced)); }

  // From now on over this one; null until another comes.
  void use(std::unique_ptr<TracedCommunicator> traced);
  bool joining() const { return communicator != nullptr && communicator->joining(); }

  std::unique_ptr<JoinCommunicator> communicator;
  FusedAllreduce fused;  // has memory of the communicator
};

inline Communicator& communicator_of(TensorCollectives& ranks) {
  return *ranks.internals().communicator;
}

class Session::Internals {
 public:
  Internals();

  TensorCollectives::Internals& ranks() { return collectives.internals(); }
  Communicator& communicator() { return communicator_of(collectives); }

  // How a thread that reduces gradients beside the training thread had best wait. On 2 cores, 2 ranks' steps
  // were 7 to 10 % shorter (gpt) with spinning inside MPI, in spite of the cores it takes; 4 ranks' the same,
  // where napping is kinder to others.
  Waiting waiting_for_gradients() const;
  // A further communicator over all ranks, for a thread of its own; collective. Must not outlive the session.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting);
  // The same over a group; collective over its ranks.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting, Group& group);
  std::unique_ptr<TracedCommunicator> traced(std::unique_ptr<Communicator> communicator,
                                             std::uint16_t number);
  // Ranks that have joined would not take part. Throws: UserError.
  void refuse_while_joining();

  // When a collective counts as stalled; from now on, instead of what the environment said.
  void watch_stalls(const WatchdogOptions& options);
  // This rank's user knows why the job ends: the other ranks need not find out. Returns whether that is news,
  // for an error that says a peer was lost; otherwise this rank's watchdog has said it already.
  bool is_ending(ExitCode code);

  MpiJob job;
  std::unique_ptr<Timeline> timeline;
  std::unique_ptr<GpuActivity> gpu_activity;
  std::string no_gpu_activity = "nothing is recorded";
  std::unique_ptr<Recording> recording;
  SignalEvent trace_asked;
  std::unique_ptr<TraceRequests> trace_requests;
  CollectiveRegistry calls;
  TensorCollectives collectives;
  std::uint16_t communicators = 0;
  std::unique_ptr<Watchdog> watchdog;  // null in a job of one rank
};

}  // namespace farandole
