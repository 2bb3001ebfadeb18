// Kernels, copies and synchronisation of this process's GPUs as events of its timeline, through CUPTI.
#pragma once

#include <memory>
#include <string>

#include "farandole/timeline/timeline.h"

namespace farandole {

// One track of the timeline a stream ("GPU 0 stream 7"), one for what waited for GPUs, one for NVTX's ranges
// (with NVTX_INJECTION64_PATH naming libcupti.so). Events carry the step and phase in which they were
// launched, whatever thread launched them; NCCL's kernels are told by their names. Buffers are filled by the
// driver and read on a thread of CUPTI's. One at a time in a process.
class GpuActivity {
 public:
  // Of the steps in `window`. Null where there is nothing to record from; then `why_not` says why. `timeline`
  // outlives the result.
  static std::unique_ptr<GpuActivity> start(Timeline& timeline, const StepWindow& window,
                                            std::string& why_not);
  virtual ~GpuActivity() = default;  // brings in what is under way

  // A step begins, or ends with -1. From the thread that trains, after Timeline::set_step.
  virtual void mark_step(std::int64_t step) = 0;
  // Returns when all that GPUs have finished is in the timeline.
  virtual void flush() = 0;
};

}  // namespace farandole
