#include "farandole/timeline/merge/run_start.h"

#include <algorithm>
#include <fmt/format.h>

namespace farandole {

RunStart last_of(const std::vector<RunStart>& starts) {
  const auto last = std::max_element(starts.begin(), starts.end(), [](const auto& a, const auto& b) {
    return a.realtime_ns < b.realtime_ns;
  });
  return last != starts.end() ? *last : RunStart{};
}

bool is_earlier(const RunStart& start, const RunStart& last) {
  const bool other_size = start.world_size > 0 && last.world_size > 0 && start.world_size != last.world_size;
  return start.realtime_ns + (other_size ? 0 : clocks_differ_ns) < last.realtime_ns;
}

std::string earlier_starts_text(std::size_t recorders) {
  if (recorders == 0) return "";
  return fmt::format("{} flight recorder{} of an earlier start: left out", recorders,
                     recorders == 1 ? " is" : "s are");
}

}  // namespace farandole
