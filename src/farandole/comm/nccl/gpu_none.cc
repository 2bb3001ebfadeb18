// For builds without the headers of CUDA and NCCL.
#include "farandole/base/error.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/gpu/gpu_staging.h"
#include "farandole/comm/nccl/nccl_communicator.h"

namespace farandole {

struct CudaFunctions {};

std::shared_ptr<const GpuRuntime> GpuRuntime::load(std::string& why_not) {
  why_not = "Farandole was built without the headers of CUDA and NCCL";
  return nullptr;
}

GpuRuntime::~GpuRuntime() = default;

// Never called, because load() returns nothing; programs are linked with them.
int GpuRuntime::device_count() const {
  return 0;
}
GpuRuntime::Device GpuRuntime::describe(int) const {
  return {};
}
std::string GpuRuntime::topology(int) const {
  return {};
}
void GpuRuntime::use(int) const {}

struct GpuStaging::Memory {};
GpuStaging::GpuStaging(std::shared_ptr<const GpuRuntime>) {}
GpuStaging::~GpuStaging() = default;
std::shared_ptr<const GpuStaging::Copies> GpuStaging::start(std::span<const Piece>, CUstream_st*) {
  return nullptr;
}
void GpuStaging::prepare(std::size_t, int) {}
void GpuStaging::hold(CUstream_st*) {}
GpuStaging::Copies::~Copies() = default;
void GpuStaging::Copies::wait() const {}
void GpuStaging::Copies::read(std::size_t, std::byte*) const {}

std::string nccl_version() {
  throw UserError("Farandole was built without the headers of CUDA and NCCL");
}

}  // namespace farandole
