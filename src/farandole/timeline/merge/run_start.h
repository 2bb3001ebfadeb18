// Determines to which start of a run directory a recorder belongs. A start with fewer ranks leaves the
// recorders of the other ranks as they were.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace farandole {

// The largest difference that is expected between the dates of different hosts.
inline constexpr std::int64_t clocks_differ_ns = 60'000'000'000;

struct RunStart {
  std::int64_t realtime_ns = 0;
  int world_size = 0;  // 0 if unknown
};

RunStart last_of(const std::vector<RunStart>& starts);
// The ranks of one start begin at the same time, within the difference of the hosts' dates.
bool is_earlier(const RunStart& start, const RunStart& last);
// One line for people; "" if `recorders` is 0.
std::string earlier_starts_text(std::size_t recorders);

}  // namespace farandole
