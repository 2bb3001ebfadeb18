#include "farandole/train/gpu_device.h"

#include <ATen/Context.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

namespace farandole {

std::shared_ptr<const GpuRuntime> load_gpus(std::string& why_not) {
  auto runtime = GpuRuntime::load(why_not);
  if (runtime == nullptr) return nullptr;
  // LibTorch finds the kernels of CUDA through what this library registers. Nothing links it, so that
  // programs start where it or its dependencies are missing.
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    why_not = std::string("LibTorch has no CUDA here (") + ::dlerror() + "); install its build for CUDA";
    return nullptr;
  }
  if (!at::hasCUDA()) {
    why_not = "LibTorch finds no GPU";
    return nullptr;
  }
  return runtime;
}

GpuOfRank use_gpu(std::shared_ptr<const GpuRuntime> runtime, int device) {
  runtime->use(device);
  const torch::Device place(torch::kCUDA, static_cast<torch::DeviceIndex>(device));
  const c10::impl::VirtualGuardImpl cuda(torch::kCUDA);
  cuda.setDevice(place);
  return {std::move(runtime), device,
          [cuda, place] { return static_cast<CUstream_st*>(cuda.getStream(place).native_handle()); }};
}

}  // namespace farandole
