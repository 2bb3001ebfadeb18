// Our kernels on the CPU: the code of each thread, one thread after another.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cuda_runtime_api.h>
#include <functional>
#include <string>
#include <vector>

#include "gpu/double/streams.h"

namespace gpu_double {

struct Launch {
  std::vector<Access> accesses;  // known before it runs
  std::function<void(const AddAccess&)> work;
};
using Kernel = Launch (*)(dim3 blocks, dim3 threads, void** arguments);

// Null if there is no kernel of this name.
Kernel find_kernel(const std::string& name);

}  // namespace gpu_double
