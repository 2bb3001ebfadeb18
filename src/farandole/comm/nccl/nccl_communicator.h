// Collectives on memory of GPUs, through NCCL.
// Thread safety: none; use from one thread at a time.
// Collective: every rank of the group must make the same calls in the same order.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "farandole/comm/gpu/device_communicator.h"
#include "farandole/comm/gpu/device_flights.h"

struct ncclComm;  // NCCL's name for what ncclComm_t points to

namespace farandole {

struct NcclFunctions;

// "2.28.9", of the library that is loaded here.
// Throws: UserError if there is none.
std::string nccl_version();

// The first collective of a kind connects the ranks, so the call returns when all of them have come to it.
// Min and max may lose a NaN. Memory need not come from allocate(), which only saves a copy.
class NcclCommunicator final : public DeviceCommunicator {
 public:
  // The ranks are those of `bootstrap`, which is not needed afterwards. `device` is the number of
  // this rank's GPU.
  // Throws: UserError on all ranks if two ranks use the same GPU, or if NCCL cannot be loaded here.
  // Throws: Error with ExitCode::peer_lost if a rank is lost meanwhile; Error if NCCL fails.
  // Collective: every rank of `bootstrap` must call this in the same order.
  NcclCommunicator(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime, int device,
                   DeviceCommunicatorOptions options = {});
  // If all collectives are complete, waits up to a second until those of the other ranks are, too.
  ~NcclCommunicator() override;

  void reduce(std::string_view name, std::span<const DeviceReduction> reductions,
              CUstream_st* stream) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank, CUstream_st* stream) override;
  Buffer allocate(std::size_t bytes) override;
  void check() override { flights_->check(); }
  void await(const GpuEvent& event) override { flights_->await(event); }

 private:
  struct Handle;  // the communicator of NCCL and the functions; memory of allocate() refers to it

  void start(Communicator& bootstrap, std::span<const DevicePeer> peers);
  template <class Call>
  void queue(const char* operation, std::string_view name, std::size_t bytes, CUstream_st* stream, Call call);
  int op_of(const DeviceReduction& reduction, std::string_view name);
  void complete(int result, std::string_view call, std::string_view name);
  void end_group(int result, std::string_view call, std::string_view name);
  std::optional<DeviceLoss> asynchronous_error(const std::string& waiting_in) const;

  const std::shared_ptr<const GpuRuntime> runtime_;
  const std::shared_ptr<Handle> handle_;
  std::optional<DeviceFlights> flights_;
};

}  // namespace farandole
