// Buckets in memory of a GPU, reduced on a stream of their own while other streams compute.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <functional>
#include <memory>

#include "farandole/comm/gpu/device_communicator.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/fusion/bucket_device.h"

namespace farandole {

// The GPU of a rank and what computes on it.
struct GpuOfRank {
  std::shared_ptr<const GpuRuntime> runtime;
  int device = 0;
  std::function<CUstream_st*()> current_stream;  // of the calling thread
  bool shared =
      false;  // other ranks may use it, too; then buckets are reduced through CUDA IPC, or else by NCCL
};

enum class FindNonfinite : bool { no, yes };

// `bootstrap` must outlive the last make().
// Throws: as the constructors of NcclCommunicator, IpcCommunicator and GpuKernels.
// Collective: every rank of `bootstrap` must call this in the same order.
std::unique_ptr<BucketDevice> make_gpu_buckets(Communicator& bootstrap, const GpuOfRank& gpu,
                                               DeviceCommunicatorOptions options,
                                               FindNonfinite find_nonfinite);

}  // namespace farandole
