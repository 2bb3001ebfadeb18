// Writes a run's records in the form of PyTorch's profiler, one file a rank, for tools that read that:
// Holistic Trace Analysis, TensorBoard's plug-in. Used by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "farandole/timeline/merge/record_source.h"
#include "farandole/timeline/merge/trace_merge.h"

namespace farandole {

// Such tools know GPUs only. So what Farandole counts as a CPU run's compute (the innermost forward, backward
// and optimizer of the thread that trains) is written as kernels of a stream 7, and collectives as NCCL
// kernels of stream 20, beside the spans themselves as the host's annotations; a GPU run's kernels, copies
// and collectives are written as they are. Steps become ProfilerStep#N.
//
// Writes folder/rank-0003.json.gz of each rank and returns how many. Clocks are refined as in a merge. Throws
// as merge_timelines().
std::size_t export_kineto(std::vector<RankTimeline> ranks, const std::filesystem::path& folder);

}  // namespace farandole
