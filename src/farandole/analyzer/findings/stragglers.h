// Finds the ranks for which others wait, how regularly they are late, and the phase that makes
// them late. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

enum class LatePattern { chronic, rotating, one_off };
std::string_view name_of(LatePattern pattern);

struct Straggler {
  std::size_t rank_index = 0;  // Index into RunMetrics::ranks.
  LatePattern pattern = LatePattern::chronic;
  std::string phase;           // "" if no phase of the rank explains the lateness.
  double lateness_ms = 0;      // Median over all steps (chronic) or over the late steps.
  std::size_t late_steps = 0;  // For one_off, the steps that make up the lateness.
};

// Returns the stragglers, the most expensive first. A rank is late in a step if it exceeds the lower median
// of the ranks' lateness by more than max(clock error, 2 % of the median step). It is chronic if it is late
// in at least half of the steps and comes after most ranks in more steps than chance explains (at most three
// quarters). It is one_off if at most 3 steps, or 1 % of the steps, make up two thirds of its lateness.
// Otherwise it is rotating. Ranks that cost less than 0.5 % of the window are left out.
std::vector<Straggler> find_stragglers(const RunMetrics& metrics);

}  // namespace farandole
