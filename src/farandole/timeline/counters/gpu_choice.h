// Chooses the GPU whose counters a rank records.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

namespace farandole {

// Returns a device as for GpuCounters::open(), or "" if the rank must not use any GPU. `visible_devices` is
// CUDA_VISIBLE_DEVICES, or nullptr if it is not set. If it is not set, local ranks take the node's GPUs in
// turn, by NVML's numbers; these are CUDA's numbers if all GPUs are of one model. If it is a list, local
// ranks take its entries in turn and start again after the last entry. So a list with one entry, which a
// launcher sets per rank, gives that GPU to the rank.
std::string gpu_of_rank(int local_rank, const char* visible_devices);

}  // namespace farandole
