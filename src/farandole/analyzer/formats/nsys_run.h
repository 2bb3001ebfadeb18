// Reads exports of Nsight Systems (nsys export --type sqlite, plain or gzip) with one or several processes
// per file as a run.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <vector>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Reads kernels, CUDA graphs, copies and NVTX ranges. Ranges named "step 12" or "iteration 12" are steps;
// ranges named like Farandole's categories ("forward", "data", …) are phases. Damaged files are named in the
// warnings and left out.
// Throws: CorruptInput if no file can be read.
RunModel read_nsys(const std::vector<std::filesystem::path>& files);

}  // namespace farandole
