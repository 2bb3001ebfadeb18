// For builds without the headers of CUDA and NCCL.
#include "farandole/comm/gpu/gpu_runtime.h"

namespace farandole {

struct CudaFunctions {};

std::shared_ptr<const GpuRuntime> GpuRuntime::load(std::string& why_not) {
  why_not = "Farandole was built without the headers of CUDA and NCCL";
  return nullptr;
}

GpuRuntime::~GpuRuntime() = default;

}  // namespace farandole
