// Which start of a run directory a recorder is of: one on fewer ranks leaves those of the others as they
// were. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace farandole {

struct RunStart {
  std::int64_t realtime_ns = 0;
  int world_size = 0;  // 0: unknown
};

RunStart last_of(const std::vector<RunStart>& starts);
// The ranks of one start begin together, by clocks that differ by a minute at most.
bool is_earlier(const RunStart& start, const RunStart& last);
// One line for people; "" where there are none.
std::string earlier_starts_text(std::size_t recorders);

}  // namespace farandole
