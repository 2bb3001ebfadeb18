// Converts CUPTI's activity records to events of the timeline.
//
// A record of GPU work carries the correlation id of the call that launched it. The call's own record has the
// launch time, which determines step and phase. It may arrive before or after the record of the work, so the
// record that arrives first is kept until the other one arrives.
// Thread safety: none; use from one thread at a time. Another thread may add to the history at the same time.
#pragma once

#include <cstdint>
#include <cupti.h>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "farandole/timeline/gpu/launch_history.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// The calls of the runtime and the driver that are recorded. Others launch nothing; programs make thousands
// of them in a step, for example to ask whether an event is reached.
inline constexpr CUpti_CallbackId launching_calls_of_runtime[] = {
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000,
    CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020};
inline constexpr CUpti_CallbackId launching_calls_of_driver[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async};
struct WaitingCall {
  bool of_driver;
  CUpti_CallbackId id;
  const char* name;
};
inline constexpr WaitingCall waiting_calls[] = {
    {false, CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020, "wait for a stream"},
    {false, CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020, "wait for an event"},
    {false, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020, "wait for the device"},
    {true, CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, "wait for a stream"},
    {true, CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize, "wait for an event"},
    {true, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize, "wait for the device"}};

class ActivityReader {
 public:
  ActivityReader(Timeline& timeline, const LaunchHistory& history, const CollectiveLaunches& collectives)
      : timeline_(timeline), history_(history), collectives_(collectives) {}

  // Times are on the clock of now_ns(). Records of unknown kinds are ignored.
  void read(const CUpti_Activity& record);
  // Call this when all launches are known. Work that still waits for its launch is recorded with its own
  // start time as launch time.
  void finish();

 private:
  struct Work {
    Category category;
    NameId name;
    TrackId track;
    std::int64_t start_ns, end_ns;
    std::uint64_t bytes = 0;  // of a copy
  };
  static constexpr std::size_t most_waiting = 1 << 18;

  template <class Record>
  void work(const Record& record, Category category, std::string_view name, std::uint64_t bytes = 0);
  void annotation(const CUpti_ActivityMarker2& marker);
  void launched(std::uint32_t correlation, std::int64_t at_ns);
  void record(const Work& work, std::int64_t launch_ns);
  TrackId stream(std::uint32_t device, std::uint32_t number);
  TrackId track(const std::string& name);
  NameId name(std::string_view mangled_or_plain);
  NameId name_of_work(const Work& work, std::int64_t launch_ns);

  Timeline& timeline_;
  const LaunchHistory& history_;
  const CollectiveLaunches& collectives_;
  // By correlation id; the oldest ones are forgotten. The ids wrap around, so their order says nothing.
  std::unordered_map<std::uint32_t, std::int64_t> launches_;
  std::deque<std::uint32_t> order_of_launches_;
  std::unordered_multimap<std::uint32_t, Work> waiting_;             // waiting for their launch
  std::map<std::uint32_t, std::pair<NameId, std::int64_t>> ranges_;  // NVTX ranges that have begun, by id
  std::unordered_map<std::string, NameId> names_;
  std::unordered_map<std::uint32_t, std::string> kernels_of_collectives_;  // by name in the timeline
  std::unordered_map<std::string, TrackId> tracks_;
};

}  // namespace farandole
