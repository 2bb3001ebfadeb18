// For builds without the headers of CUDA and NCCL.
#include "farandole/base/error.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/nccl/nccl_communicator.h"

namespace farandole {

struct CudaFunctions {};

std::shared_ptr<const GpuRuntime> GpuRuntime::load(std::string& why_not) {
  why_not = "Farandole was built without the headers of CUDA and NCCL";
  return nullptr;
}

GpuRuntime::~GpuRuntime() = default;

std::string nccl_version() {
  throw UserError("Farandole was built without the headers of CUDA and NCCL");
}

}  // namespace farandole
