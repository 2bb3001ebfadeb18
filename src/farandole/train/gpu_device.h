// LibTorch on GPUs: its CUDA library is loaded when a program asks for a GPU.
// Thread safety: call from the training thread only.
#pragma once

#include <memory>
#include <string>
#include <torch/types.h>

#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/fusion/gpu_buckets.h"

namespace farandole {

// Returns nullptr and says why if this rank cannot use a GPU. Call it before anything else of LibTorch that
// looks for GPUs, because LibTorch looks only once.
std::shared_ptr<const GpuRuntime> load_gpus(std::string& why_not);

// Makes a GPU the current one of this thread and of LibTorch.
GpuOfRank use_gpu(std::shared_ptr<const GpuRuntime> runtime, int device);

}  // namespace farandole
