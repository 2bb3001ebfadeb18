// The kernels, each a launch of code that is shared with the CPU. gpu_kernels.h launches them by these names.
#include "farandole/comm/gpu/kernel_jobs.h"

using namespace farandole;

extern "C" __global__ void farandole_copy(BatchedCopy copy) {
  copy_part(copy, blockIdx.x, threadIdx.x, blockDim.x);
}

extern "C" __global__ void farandole_scan_nonfinite(NonfiniteScan scan) {
  const auto lower = [](std::uint64_t* at, std::uint64_t value) {
    atomicMin(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
  };
  scan_nonfinite(scan, std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                 std::uint64_t{gridDim.x} * blockDim.x, lower);
}

extern "C" __global__ void farandole_reduce_peers(PeerReduction job) {
  reduce_peers(job, std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x, std::uint64_t{gridDim.x} * blockDim.x);
}
