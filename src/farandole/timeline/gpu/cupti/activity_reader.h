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

// The host asks often whether an event is reached. These calls launch nothing, so they are not recorded. They
// would fill the buffers and take the place of launches.
constexpr CUpti_CallbackId runtime_query = CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020,
                           driver_query = CUPTI_DRIVER_TRACE_CBID_cuEventQuery;

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
  };
  static constexpr std::size_t most_waiting = 1 << 18;

  template <class Record>
  void work(const Record& record, Category category, std::string_view name);
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
