// Turns CUPTI's activity records into events of the timeline. Used by one thread at a time; the history may
// grow meanwhile.
//
// What a GPU does carries the correlation id of the call that launched it. The call's own record, which tells
// when that was and so in which step and phase, may come before or after it: what comes first waits for the
// other.
#pragma once

#include <cstdint>
#include <cupti.h>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "farandole/timeline/gpu/launch_history.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class ActivityReader {
 public:
  ActivityReader(Timeline& timeline, const LaunchHistory& history) : timeline_(timeline), history_(history) {}

  // Times are on the clock of now_ns(). Kinds that it does not know are left out.
  void read(const CUpti_Activity& record);
  // All launches so far are known: what still waits for one goes by its own start.
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

  Timeline& timeline_;
  const LaunchHistory& history_;
  std::map<std::uint32_t, std::int64_t> launches_;        // by correlation id, until their work comes
  std::unordered_multimap<std::uint32_t, Work> waiting_;  // for their launch
  std::map<std::uint32_t, std::pair<NameId, std::int64_t>> ranges_;  // of NVTX that have begun, by id
  std::unordered_map<std::string, NameId> names_;
  std::unordered_map<std::string, TrackId> tracks_;
};

}  // namespace farandole
