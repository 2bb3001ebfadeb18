// Buckets in memory of a GPU, reduced by NCCL on a stream of their own while other streams compute.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <functional>
#include <memory>

#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/nccl/nccl_communicator.h"
#include "farandole/fusion/bucket_device.h"

namespace farandole {

// The GPU of a rank and what computes on it.
struct GpuOfRank {
  std::shared_ptr<const GpuRuntime> runtime;
  int device = 0;
  std::function<CUstream_st*()> current_stream;  // of the calling thread
};

enum class FindNonfinite : bool { no, yes };

// Throws: as the constructors of NcclCommunicator and GpuKernels.
// Collective: every rank of `bootstrap` must call this in the same order.
std::unique_ptr<BucketDevice> make_nccl_buckets(Communicator& bootstrap, const GpuOfRank& gpu,
                                                NcclOptions options, FindNonfinite find_nonfinite);

}  // namespace farandole
