// Collectives on memory of GPUs, through NCCL. A call queues its work on a stream and returns; the host does not wait.
// Thread safety: none; use from one thread at a time.
// Collective: every rank of the group must make the same calls in the same order.
//
// A thread of the communicator looks after the queued collectives, some times in a second while there are any. It keeps
// the registry of collectives in flight up to date, so that the watchdog reports a collective that lasts too long as it
// reports those of CPUs. If NCCL reports an error or a rank of this node is lost, the thread aborts the communicator.
// Then the kernels end that wait for the lost rank, and every later call throws the reason instead of waiting forever.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/peer_watch.h"
#include "farandole/timeline/gpu/collective_launches.h"

struct ncclComm;  // NCCL's name for what ncclComm_t points to

namespace farandole {

struct NcclFunctions;

// "2.28.9", of the library that is loaded here.
// Throws: UserError if there is none.
std::string nccl_version();

struct NcclOptions {
  std::vector<int> world_ranks{};  // ranks in the job, for messages; default: 0, 1, …
  std::uint16_t number = 0;        // identifies the communicator in the registry
  CollectiveRegistry* registry =
      nullptr;  // must outlive the communicator; null: the watchdog does not see it
  CollectiveLaunches* launches = nullptr;  // must outlive the communicator; null: nobody is told of launches
};

class NcclCommunicator {
 public:
  // The ranks are those of `bootstrap`, which is not needed afterwards. `device` is the number of this rank's GPU.
  // Throws: UserError on all ranks if two ranks use the same GPU, or if NCCL cannot be loaded here.
  // Throws: Error with ExitCode::peer_lost if a rank is lost meanwhile; Error if NCCL fails.
  // Collective: every rank of `bootstrap` must call this in the same order.
  NcclCommunicator(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime, int device,
                   NcclOptions options = {});
  // Aborts collectives that are not complete.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const int rank;
  const int size;

  // As the functions of Communicator with these names, but of device memory, and complete when the stream has come so
  // far. Min and max may lose a NaN. A reduction in a 16-bit type may round after each addition.
  // Throws: UserError if the element type does not have the operation; as check() if the communicator was aborted.
  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op,
                 CUstream_st* stream);
  // Sums or averages elements of float32 or float64 that NCCL multiplies by `factor` before.
  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op,
                 double factor, CUstream_st* stream);
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank, CUstream_st* stream);
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root, CUstream_st* stream);
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op,
                      CUstream_st* stream);
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes, CUstream_st* stream);
  // Zeroed device memory that NCCL may use without a copy. It may outlive the communicator.
  Buffer allocate(std::size_t bytes);

  // Throws the reason if the communicator has been aborted.
  void check();
  // Lets the host wait until the stream has come to the event.
  // Throws: as check(), so that nobody waits for a lost rank.
  void await(const GpuEvent& event);

 private:
  struct Handle;  // the communicator of NCCL and the functions; memory of allocate() refers to it
  struct Flight {
    std::uint32_t sequence = 0;
    const char* operation = "";
    std::string name;
    std::size_t bytes = 0;
    std::int64_t since_ns = 0;
    std::unique_ptr<GpuEvent> end;
  };
  struct Loss {
    std::string message;
    ExitCode code;
  };
  struct Introduction;

  void meet(Communicator& bootstrap, const std::vector<int>& world_ranks);
  void initialize(const Introduction& root);
  template <class Call>
  void queue(const char* operation, std::string_view name, std::size_t bytes, CUstream_st* stream, Call call);
  void settle(int result, std::string_view call, std::string_view name);
  void throw_loss() const;
  void watch();
  void look();
  void fail(std::string message, ExitCode code);
  std::optional<std::string> lost_peer() const;

  const std::shared_ptr<const GpuRuntime> runtime_;
  const int device_;
  const std::shared_ptr<Handle> handle_;
  std::unique_ptr<PeerWatch> peers_;
  std::shared_ptr<CollectiveEntry>
      entry_;  // null without a registry; only the watching thread writes into it
  CollectiveLaunches* const launches_;

  std::mutex& mutex_;  // of the handle; for what follows and for all calls with the communicator of NCCL
  std::condition_variable work_;
  bool stopping_ = false;
  std::uint32_t sequence_ = 0;  // the start counts as the first collective
  std::deque<Flight> flights_;  // not known to be complete, oldest first
  std::vector<std::unique_ptr<GpuEvent>> spare_;
  std::optional<Loss> loss_;
  std::optional<std::uint32_t> shown_;  // sequence in the registry
  StopEvent stop_;
  std::thread thread_;
};

}  // namespace farandole
