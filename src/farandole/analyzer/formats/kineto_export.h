// Writes the records of a run in the format of PyTorch's profiler, one file per rank, for tools such as
// Holistic Trace Analysis and TensorBoard's plug-in.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "farandole/timeline/merge/record_source.h"
#include "farandole/timeline/merge/trace_merge.h"

namespace farandole {

// These tools know only GPUs. Therefore the compute of a CPU run (the innermost forward, backward and
// optimizer spans of the training thread) is written as kernels on stream 7, and collectives as NCCL kernels
// on stream 20. The spans themselves are also written as annotations of the host. Kernels, copies and
// collectives of a GPU run are written unchanged. Steps become ProfilerStep#N.
//
// Writes folder/rank-0003.json.gz for each rank and returns the number of files. Clocks are refined
// as in a merge.
// Throws: the errors of merge_timelines().
std::size_t export_kineto(std::vector<RankTimeline> ranks, const std::filesystem::path& folder);

}  // namespace farandole
