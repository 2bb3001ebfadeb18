// Collectives on memory of GPUs. A call queues its work on a stream and returns; the host does not wait.
// Thread safety: none; use from one thread at a time.
// Collective: every rank of the group must make the same calls in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "farandole/base/process/process_state.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/timeline/gpu/launch_history.h"

namespace farandole {

// Where a rank of a communicator of GPUs is and which GPU it uses. Every rank tells this to every other one.
// Sent as it is.
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

struct DeviceCommunicatorOptions {
  std::vector<int> world_ranks{};  // ranks in the job, for messages; default: 0, 1, …
  std::uint16_t number = 0;        // identifies the communicator in the registry
  // Must outlive the communicator; null: the watchdog does not see it.
  CollectiveRegistry* registry = nullptr;
  CollectiveLaunches* launches = nullptr;  // must outlive the communicator; null: nobody is told of launches
};

// What happens to an array that all ranks have.
struct DeviceReduction {
  void* data;
  std::size_t count;
  DType dtype;
  ReduceOp op;
  double factor =
      1;  // elements of float32 or float64 are multiplied by it before they are summed or averaged
  // Each rank gets only its part of the result, in place: part r of as many equal parts as there are ranks.
  // The other parts are undefined afterwards. `count` is a multiple of the number of ranks.
  bool scattered = false;
};
std::size_t bytes_of(std::span<const DeviceReduction> reductions);

// Like the functions of Communicator with these names, but on device memory. A call is complete when the
// stream has reached it. A reduction in a 16-bit type may round after each addition. What other ranks read or
// write must be in memory of allocate(), at the same place on each rank: the data of reductions and
// the output of all_gather.
// Throws: UserError if the element type does not have the operation; as check() if the
// communicator was aborted.
class DeviceCommunicator {
 public:
  DeviceCommunicator(int own_rank, int ranks) : rank(own_rank), size(ranks) {}
  // Aborts collectives that are not complete.
  virtual ~DeviceCommunicator() = default;
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  const int rank;
  const int size;

  // Several reductions as one collective.
  virtual void reduce(std::string_view name, std::span<const DeviceReduction> reductions,
                      CUstream_st* stream) = 0;
  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op,
                 double factor, CUstream_st* stream) {
    const DeviceReduction only{data, count, dtype, op, factor};
    reduce(name, {&only, 1}, stream);
  }
  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op,
                 CUstream_st* stream) {
    allreduce(name, data, count, dtype, op, 1, stream);
  }
  virtual void all_gather(std::string_view name, const void* in, void* out,
                          std::span<const std::size_t> bytes_by_rank, CUstream_st* stream) = 0;
  // Zeroed device memory. It may outlive the communicator.
  // Collective: every rank must call this with the same size.
  virtual Buffer allocate(std::size_t bytes) = 0;
  // Throws the reason if the communicator has been aborted.
  virtual void check() = 0;
  // Lets the host wait until the stream has come to the event.
  // Throws: as check(), so that nobody waits for a lost rank.
  virtual void await(const GpuEvent& event) = 0;
};

}  // namespace farandole
