// What the test doubles of the CUDA runtime and of NCCL share: injected faults and random delays.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

namespace gpu_double {

// True if the environment variable GPU_DOUBLE_FAIL is "NAME:N" and this is the Nth call with this name. If it
// is GPU_DOUBLE_DIE, the process is killed there.
bool fails(const std::string& name);
// Gives other threads time in three of four calls, so that work without order runs in a wrong one.
void delay();

}  // namespace gpu_double
