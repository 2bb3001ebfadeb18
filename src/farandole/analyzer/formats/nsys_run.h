// Reads exports of Nsight Systems (nsys export --type sqlite, gzip or not), one or several processes a file,
// into a run. Usable from any thread.
#pragma once

#include <filesystem>
#include <vector>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Kernels, CUDA graphs, copies and NVTX ranges; ranges that are called "step 12" or "iteration 12" are steps,
// those called as our categories ("forward", "data", …) phases. Ranks are the processes, file after file.
// Damaged files are named in the warnings and left out; throws CorruptInput where none is sound.
RunModel read_nsys(const std::vector<std::filesystem::path>& files);

}  // namespace farandole
