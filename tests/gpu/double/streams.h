// The streams and the memory of the test double of CUDA, for that of NCCL.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <driver_types.h>
#include <functional>
#include <vector>

#include "gpu/double/order.h"

namespace gpu_double {

// Queues work that uses this memory. `work` may add accesses that nobody knows before it runs.
using AddAccess = std::function<void(const Access&)>;
void run_on(CUstream_st* stream, std::vector<Access> accesses, std::function<void(const AddAccess&)> work);

// Like a real device's memory, new memory holds what nobody expects.
void* allocate(std::size_t bytes);
void release(void* memory);

}  // namespace gpu_double

// What tests ask of the double, beside the functions of CUDA.
extern "C" {
// A stream whose work the calling thread runs itself, for memory that LibTorch uses on the CPU.
CUstream_st* gpu_double_host_stream();
// While it is paused, no stream begins a piece of work.
void gpu_double_pause(bool pause);
// Since the start of the process:
int gpu_double_launches();  // of kernels
int gpu_double_waits();     // that streams were given for events
int gpu_double_races();     // pieces of work that used the same memory without order
}
