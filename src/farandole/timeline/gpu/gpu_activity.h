// Records kernels, copies and synchronization of this process's GPUs as events of
// its timeline, through CUPTI.
#pragma once

#include <memory>
#include <string>

#include "farandole/timeline/gpu/activity_steps.h"
#include "farandole/timeline/gpu/launch_history.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// The timeline gets one track per stream ("GPU 0 stream 7"), one for waits for GPUs, and one for NVTX ranges
// if NVTX_INJECTION64_PATH names libcupti.so. Events carry the step and phase in which they were launched,
// whichever thread launched them. Kernels of NCCL, and those that reduce the buckets of ranks that share a
// GPU, are recognized by their names, and get the name of the collective that launched them:
// "ncclDevKernel_AllReduce_Sum_f32_RING_LL(bucket 3)". The driver fills buffers, and a thread that gives way
// to those that train reads them. A process can have one GpuActivity at a time.
// Thread safety: call from the training thread only.
class GpuActivity {
 public:
  // Records these steps. If recording is not possible, returns nullptr and `why_not` says why.
  // `timeline` and `collectives` must outlive the result.
  static std::unique_ptr<GpuActivity> start(Timeline& timeline, const ActivitySteps& steps,
                                            const CollectiveLaunches& collectives, std::string& why_not);
  // Records the events that are still in buffers. Work that the GPUs have not finished yet is left out.
  virtual ~GpuActivity() = default;

  // A step begins; -1 means that it ends. Call this after Timeline::set_step.
  virtual void mark_step(std::int64_t step) = 0;
  // The next ActivitySteps::length steps are recorded too.
  // Thread safety: any thread may call this at any time.
  virtual void record_next_steps() noexcept = 0;
  // Records what is in buffers. A buffer that also has work which the GPUs have not finished yet is
  // left for later.
  virtual void flush() = 0;
};

}  // namespace farandole
