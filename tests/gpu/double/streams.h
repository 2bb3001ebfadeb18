// How the test double of NCCL queues work on a stream of the test double of CUDA.
// Thread safety: any thread may call this at any time.
#pragma once

#include <driver_types.h>
#include <functional>

namespace gpu_double {

void synchronize();  // returns when the work of all streams is done
void run_on(CUstream_st* stream, std::function<void()> work);

}  // namespace gpu_double
