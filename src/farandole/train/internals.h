// The members of Session, Group and TensorCollectives, for Farandole's own programs, benchmarks and tests.
// The installed headers do not include this header.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/comm/job/mpi_job.h"
#include "farandole/comm/recording/recording.h"
#include "farandole/comm/recording/trace_requests.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/signal_event.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/comm/wrap/join_communicator.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/fusion/gpu_buckets.h"
#include "farandole/timeline/gpu/gpu_activity.h"
#include "farandole/timeline/timeline.h"
#include "farandole/train/fused_allreduce.h"
#include "farandole/train/group.h"
#include "farandole/train/session.h"
#include "farandole/train/tensor_collectives.h"

namespace farandole {

struct TensorCollectives::Internals {
  explicit Internals(std::unique_ptr<TracedCommunicator> traced = {}) { use(std::move(traced)); }

  // Replaces the communicator. With nullptr, collectives cannot be called until the next call.
  void use(std::unique_ptr<TracedCommunicator> traced);
  bool joining() const { return communicator != nullptr && communicator->joining(); }

  std::unique_ptr<JoinCommunicator> communicator;
  FusedAllreduce fused;  // Has memory of the communicator.
};

// An error that all ranks know (Session::together), so that the job can end normally.
class AgreedError : public Error {
 public:
  AgreedError(const std::string& message, ExitCode code, int rank) : Error(message, code), first_rank(rank) {}
  const int first_rank;
};

inline Communicator& communicator_of(TensorCollectives& ranks) {
  return *ranks.internals().communicator;
}

class Session::Internals {
 public:
  Internals();

  TensorCollectives::Internals& ranks() { return collectives.internals(); }
  Communicator& communicator() { return communicator_of(collectives); }

  // Returns how a thread that reduces gradients beside the training thread should wait. On 2 cores, steps of
  // 2 ranks (gpt) were 7 to 10 % shorter when the thread spun inside MPI, although it uses a core. Steps of 4
  // ranks took the same time; there, yielding disturbs other processes less.
  Waiting waiting_for_gradients() const;
  // Creates another communicator over all ranks, for a separate thread. It must not outlive the session.
  // Collective: every rank of the job must call this in the same order.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting, Wire wire = Wire::exact);
  // The same over a group.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting, Group& group,
                                                       Wire wire = Wire::exact);
  // For the next communicator of GPUs, of a group or of all ranks.
  DeviceCommunicatorOptions device_options(Group* group);
  std::unique_ptr<TracedCommunicator> traced(std::unique_ptr<Communicator> communicator,
                                             std::uint16_t number);
  // Returns the GPU whose load belongs to this rank, as for GpuCounters::open(): the one that it trains on,
  // or else the one that a rank at its place would get.
  std::string gpu_to_watch() const;
  // Throws: UserError inside a Join, because ranks that have joined would not take part.
  void refuse_while_joining();

  // Sets when a collective counts as stalled. This replaces the limits of the environment.
  void watch_stalls(const WatchdogOptions& options);
  void record_stall_limit();
  // Tells the watchdog that the caller knows why the job ends, so that the other ranks need not find out.
  // For an error about a lost peer, returns whether the error is new; otherwise the watchdog of this rank
  // has already reported it.
  bool is_ending(ExitCode code);
  // Makes this job the only one that writes into `run_dir` (base/run/run_lease.h), until the session
  // ends or has another run directory. If another job takes over, because this one was stopped for long,
  // this job ends.
  // Throws: as RunLease. Called on rank 0; does nothing on others.
  void take_lease(const std::filesystem::path& run_dir);
  // What an earlier start has recorded in `run_dir` is kept (base/run/earlier_starts.h).
  // Collective: every rank of the job must call this in the same order.
  void keep_earlier_start_of(Session& session, const std::filesystem::path& run_dir);

  MpiJob job;
  std::optional<RunLease> lease;
  std::unique_ptr<Timeline> timeline;
  CollectiveLaunches launches;
  std::unique_ptr<GpuActivity> gpu_activity;
  std::string no_gpu_activity = "nothing is recorded";
  std::unique_ptr<Recording> recording;
  std::filesystem::path recorded;  // The last run directory in which this session has recorded.
  SignalEvent trace_asked;
  std::unique_ptr<TraceRequests> trace_requests;
  CollectiveRegistry calls;
  TensorCollectives collectives;
  std::uint16_t communicators = 0;
  torch::Device device = torch::kCPU;
  std::optional<GpuOfRank> gpu;           // Set if gradients are in memory of a GPU.
  std::vector<std::string> gpus;          // UUID of the GPU of each rank; empty without GPUs.
  std::vector<std::string> gpu_topology;  // Of each rank, as GpuRuntime::topology(); empty without GPUs.
  std::unique_ptr<Watchdog> watchdog;     // Null in a job with one rank.
  double stall_seconds = 0;               // The watchdog reports a collective that lasts longer.
};

}  // namespace farandole
