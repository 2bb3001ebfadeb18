// Reads traces of PyTorch's profiler (Kineto), one file a rank, into a run. Usable from any thread.
#pragma once

#include <filesystem>
#include <vector>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Ranks are those of each file's distributedInfo; without, of its name ("rank3"), or as the files are sorted.
// Clocks are aligned by the ends of collectives, which all ranks leave at nearly the same time; what is left
// open is each rank's clock_residual_us. Files are read in parallel. Damaged ones are named in the warnings
// and left out; throws CorruptInput where none is sound.
RunModel read_kineto(const std::vector<std::filesystem::path>& files);

}  // namespace farandole
