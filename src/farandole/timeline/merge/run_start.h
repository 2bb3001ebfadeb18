// Which start of a run directory a recorder is of: one on fewer ranks leaves those of the others as they
// were. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace farandole {

// By how much the dates of different hosts may.
inline constexpr std::int64_t clocks_differ_ns = 60'000'000'000;

struct RunStart {
  std::int64_t realtime_ns = 0;
  int world_size = 0;  // 0: unknown
};

RunStart last_of(const std::vector<RunStart>& starts);
// The ranks of one start begin together, but for what clocks differ.
bool is_earlier(const RunStart& start, const RunStart& last);
// One line for people; "" where there are none.
std::string earlier_starts_text(std::size_t recorders);

}  // namespace farandole
