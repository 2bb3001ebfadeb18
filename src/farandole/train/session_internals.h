// What Farandole's own programs, benchmarks and tests use of a Session beside its public functions. The
// installed headers do not include this header.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/gpu/device_communicator.h"
#include "farandole/fusion/gpu_buckets.h"
#include "farandole/timeline/recorder/run_progress.h"
#include "farandole/train/group.h"
#include "farandole/train/session.h"

namespace farandole {

class CollectiveRegistry;
class DistributedOptimizer;
class TracedCommunicator;
struct WatchdogOptions;
enum class Waiting;
enum class Wire;

// An error that all ranks know (Session::together), so that the job can end normally.
class AgreedError : public Error {
 public:
  AgreedError(const std::string& message, ExitCode code, int rank) : Error(message, code), first_rank(rank) {}
  const int first_rank;
};

class Session::Internals {
 public:
  Internals();
  ~Internals();

  // Over all ranks; the collectives of the session use it as well.
  Communicator& communicator();
  // Creates another communicator over all ranks, or over `group`, for a separate thread. It must not
  // outlive the session.
  // Throws: UserError inside a Join, because ranks that have joined would not take part.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting, Wire wire, Group* group = nullptr);
  // Returns how a thread that reduces gradients beside the training thread should wait. On 2 cores, steps of
  // 2 ranks (gpt) were 7 to 10 % shorter when the thread spun inside MPI, although it uses a core. Steps of 4
  // ranks took the same time; there, yielding disturbs other processes less.
  Waiting waiting_for_gradients() const;
  // For the next communicator of GPUs, of a group or of all ranks.
  DeviceCommunicatorOptions device_options(Group* group);
  // Returns the GPU whose load belongs to this rank, as for GpuCounters::open(): the one that it trains on,
  // or else the one that a rank at its place would get.
  std::string gpu_to_watch() const;

  // The collectives that this rank is in.
  CollectiveRegistry& calls();
  // Sets when a collective counts as stalled. This replaces the limits of the environment.
  void watch_stalls(const WatchdogOptions& options);
  // Tells the watchdog that the caller knows why the job ends, so that the other ranks need not find out.
  // Returns false if the error is known: the watchdog of this rank has already reported the lost peer, or,
  // for other errors, another rank of this node has called this before.
  bool is_ending(ExitCode code);

  // Makes this job the only one that writes into `run_dir` (base/run/run_lease.h), until the session
  // ends or has another run directory. If another job takes over, because this one was stopped for long,
  // this job ends.
  // Throws: as RunLease. Called on rank 0; does nothing on others.
  void take_lease(const std::filesystem::path& run_dir);
  // As RunLease::held(), on rank 0 after take_lease().
  // Thread safety: any thread may call this at any time.
  bool holds_lease() const;

  // The last run directory in which this session has begun to record, absolute, or empty. On rank 0, how far
  // the start before had come.
  const std::filesystem::path& recorded() const;
  const RunProgress& earlier_progress() const;
  bool joining() const;  // inside a Join

  // Returns the live DistributedOptimizer that runs `inner`, or nullptr.
  DistributedOptimizer* optimizer_of(const torch::optim::Optimizer& inner) const;
  std::vector<DistributedOptimizer*> optimizers;  // Those that are alive, in the order of their creation.

  // Every optimizer asks this beside its own stop_requested, possibly on another thread. Set it between steps
  // only, on all ranks. An optimizer that averages parameters asks only if it was set before it was made.
  std::function<bool()> stop_wish;
  // Steps of optimizers over all ranks that have carried the wishes of all ranks, and whether one of them has
  // said that some rank must stop. The same on all ranks.
  std::uint64_t votes = 0;
  bool stop_voted = false;

  // A DistributedOptimizer begins and ends its step(), or is destroyed (train/step_marks.h).
  void optimizer_begins_step(const void* optimizer);
  void optimizer_ended_step(const void* optimizer);
  void optimizer_is_gone(const void* optimizer);
  void program_marks_steps();  // by numbers and by spans of category step

  std::optional<GpuOfRank> gpu;           // Set if gradients are in memory of a GPU.
  std::vector<std::string> gpus;          // UUID of the GPU of each rank; empty without GPUs.
  std::vector<std::string> gpu_topology;  // Of each rank, as GpuRuntime::topology(); empty without GPUs.

 private:
  friend class Session;
  struct Parts;  // session.cc
  std::unique_ptr<Parts> parts_;
};

}  // namespace farandole
