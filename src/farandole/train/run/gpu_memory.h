// Who uses the memory of a GPU.
// Thread safety: call from the training thread only.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "farandole/train/run/training_state.h"

namespace farandole {

// In MiB, at the peak so far: parameters (with buffers), gradients (the buckets, of `gradient_bytes`),
// optimizer, activations (all other tensors), cached (memory that LibTorch keeps for later ones), other
// (contexts of CUDA, NCCL, and other processes on this GPU), and their sum, peak. Empty if LibTorch's
// allocator does not tell.
std::vector<std::pair<std::string, double>> gpu_memory_by_owner_mib(int device, const TrackedState& tracked,
                                                                    std::size_t gradient_bytes);

}  // namespace farandole
