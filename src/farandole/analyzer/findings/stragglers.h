// Names the ranks that others wait for, how regularly, and the phase that made them late. Plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

enum class LatePattern { chronic, rotating, one_off };
std::string_view name_of(LatePattern pattern);

struct Straggler {
  std::size_t rank_index = 0;  // into RunMetrics::ranks
  LatePattern pattern = LatePattern::chronic;
  std::string phase;           // "" where no phase of its own explains it
  double lateness_ms = 0;      // median: of all steps if chronic, else of its late ones
  std::size_t late_steps = 0;  // if one-off: that make up its lateness
};

// The one that costs most first. A rank is late in a step in which it exceeds the ranks' (lower) median
// lateness by more than max(the clocks' residual, 2 % of the median step): chronic in at least half of the
// steps, where more ranks come before it than after it in more steps than chance explains (in three quarters
// at most); one-off where at most 3 or 1 % of the steps make up two thirds of its lateness; else rotating.
// What costs less than 0.5 % of the window is not named.
std::vector<Straggler> find_stragglers(const RunMetrics& metrics);

}  // namespace farandole
