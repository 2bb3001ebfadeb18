// Reads traces of PyTorch's profiler (Kineto), one file per rank, as a run.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <vector>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// The rank comes from the distributedInfo of each file, or else from its name ("rank3"), or else from the
// sorted order of the files. Clocks are aligned by the ends of collectives, which all ranks leave at nearly
// the same time; the remaining error is the clock_residual_us of each rank. Files are read in parallel.
// Damaged files are named in the warnings and left out.
// Throws: CorruptInput if no file can be read.
RunModel read_kineto(const std::vector<std::filesystem::path>& files);

}  // namespace farandole
