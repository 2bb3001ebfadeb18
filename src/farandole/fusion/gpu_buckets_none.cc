// For builds without the headers of CUDA and NCCL, in which nobody has a GpuRuntime.
#include "farandole/base/error.h"
#include "farandole/fusion/gpu_buckets.h"

namespace farandole {

std::unique_ptr<BucketDevice> make_gpu_buckets(Communicator&, const GpuOfRank&, DeviceCommunicatorOptions,
                                               FindNonfinite) {
  throw UserError("Farandole was built without the headers of CUDA and NCCL");
}

}  // namespace farandole
