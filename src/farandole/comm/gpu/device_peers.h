// The ranks of a communicator of GPUs: where they are and which GPUs they use.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farandole/base/process/process_state.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/gpu/gpu_runtime.h"

namespace farandole {

// What every rank tells every other one. Sent as it is.
struct DevicePeer {
  std::int32_t world_rank = 0;
  std::int32_t pid = 0;
  std::uint64_t pid_namespace = 0;
  char host[48] = {};    // another one on each host and after each of its starts
  char device[48] = {};  // UUID of the GPU

  bool same_host(const DevicePeer& other) const;
  bool same_device(const DevicePeer& other) const;  // and host
};

// By rank. `world_ranks` are the ranks in the job, by rank; empty: 0, 1, …
// Collective: every rank of `bootstrap` must call this in the same order.
std::vector<DevicePeer> meet_peers(Communicator& bootstrap, const GpuRuntime& runtime, int device,
                                   const std::vector<int>& world_ranks);

// The other ranks of the host of `rank`.
std::vector<PeerWatch::Peer> peers_to_watch(std::span<const DevicePeer> all, int rank);

}  // namespace farandole
