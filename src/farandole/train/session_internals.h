// What Farandole's own programs, benchmarks and tests use of a Session beside its public functions. The
// installed headers do not include this header.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/comm/gpu/device_communicator.h"
#include "farandole/fusion/gpu_buckets.h"
#include "farandole/job/job.h"
#include "farandole/train/group.h"
#include "farandole/train/session.h"

namespace farandole {

class DistributedOptimizer;

class Session::Internals : public Job {
 public:
  explicit Internals(TensorCollectives::Internals& collectives);
  ~Internals();

  // As Job::new_communicator().
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting, Wire wire, Group* group = nullptr);
  // For the next communicator of GPUs, of a group or of all ranks.
  DeviceCommunicatorOptions device_options(Group* group);
  // Returns the GPU whose load belongs to this rank, as for GpuCounters::open(): the one that it trains on,
  // or else the one that a rank at its place would get.
  std::string gpu_to_watch() const;

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

  std::optional<GpuOfRank> gpu;           // Set if gradients are in memory of a GPU.
  std::vector<std::string> gpus;          // UUID of the GPU of each rank; empty without GPUs.
  std::vector<std::string> gpu_topology;  // Of each rank, as GpuRuntime::topology(); empty without GPUs.
  torch::Device device = torch::kCPU;     // Of this rank.
};

}  // namespace farandole
