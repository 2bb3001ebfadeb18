// Collectives on memory of GPUs among ranks of one host that may share GPUs, which NCCL refuses. Each
// rank reads and writes the memory of the others directly, through CUDA IPC; their streams wait for
// each other (comm/ipc/stream_meeting.h).
// Thread safety: none; use from one thread at a time.
// Collective: every rank of the group must make the same calls in the same order.
//
// An allreduce moves two bytes of memory per byte and rank, the least that it can do in place: each rank
// reduces its part from all inputs, in the order of the ranks, and writes the result to all ranks.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "farandole/comm/gpu/device_communicator.h"
#include "farandole/comm/gpu/device_flights.h"
#include "farandole/comm/gpu/gpu_kernels.h"
#include "farandole/comm/ipc/shared_blocks.h"
#include "farandole/comm/ipc/stream_meeting.h"

namespace farandole {

// The results have the same bits as those of the CPU's communicators, except the bits of NaNs.
class IpcCommunicator final : public DeviceCommunicator {
 public:
  // The ranks are those of `bootstrap`, which must outlive the last allocate(). `device` is the number of
  // this rank's GPU.
  // Throws: UserError on all ranks if they are on several hosts or too many; Error if CUDA fails.
  // Collective: every rank of `bootstrap` must call this in the same order.
  IpcCommunicator(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime, int device,
                  DeviceCommunicatorOptions options = {});
  // If all collectives are complete, waits up to a second until the other ranks come here, too.
  ~IpcCommunicator() override;

  void reduce(std::string_view name, std::span<const DeviceReduction> reductions,
              CUstream_st* stream) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank, CUstream_st* stream) override;
  Buffer allocate(std::size_t bytes) override;
  void check() override { flights_->check(); }
  void await(const GpuEvent& event) override { flights_->await(event); }

 private:
  template <class Work>
  void queue(const char* operation, std::string_view name, std::size_t bytes, CUstream_st* stream, Work work);
  PeerReduction job_of(std::string_view name, const DeviceReduction& reduction);
  std::size_t own() const { return static_cast<std::size_t>(rank); }

  const std::shared_ptr<const GpuRuntime> runtime_;
  const GpuKernels kernels_;
  std::mutex mutex_;  // of the flights
  std::shared_ptr<SharedBlocks> blocks_;
  std::optional<StreamMeeting> meeting_;
  std::optional<DeviceFlights> flights_;
};

}  // namespace farandole
