// Which GPU a rank's counters are of. Any thread.
#pragma once

#include <string>

namespace farandole {

// As GpuCounters::open() takes it; "" where the rank is to see none. `visible_devices` is
// CUDA_VISIBLE_DEVICES, null where it is not set: then ranks take the node's GPUs in turn, by NVML's numbers,
// which are CUDA's where all are of one model. Of a list they take the entries in turn, again from the first
// where there are more ranks than that, so that a launcher's list of one entry a rank is that rank's.
std::string gpu_of_rank(int local_rank, const char* visible_devices);

}  // namespace farandole
