// Reads a run in any of the formats that the analyzer knows. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// `path` is a run directory (run.json, timeline.json.gz), a trace of Farandole or another tool, or a folder
// of traces of PyTorch's profiler or Nsight Systems with one file per rank. If the merged trace is damaged or
// has only a sample of the ranks, the recorder files next to it are read instead. Damaged or missing parts
// are named in `warnings`.
// Throws: UserError if there is no trace; CorruptInput if no part of it can be read.
RunModel read_run(const std::filesystem::path& path);

}  // namespace farandole
