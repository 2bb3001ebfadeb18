// Finds why ranks waited in collectives (what delayed the last rank), and splits 100 % of the ranks' time
// into useful compute and losses with their causes. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

struct WaitCause {
  std::string phase;  // Phase in which the last rank took longer than the others; "" if none explains it.
  std::size_t rank_index;  // The last rank.
  double seconds = 0;      // Waiting time of all ranks together.
};

// The waiting time of each collective is assigned to the last rank. It is distributed over the phases in
// which that rank took longer in this step than the median of the others. Time that the phases do not
// explain, or that is within the clock error, has no phase. The largest cause comes first; the sum is all
// waiting time in collectives.
std::vector<WaitCause> find_wait_causes(const RunMetrics& metrics);

struct Loss {
  Share share = Share::idle;
  std::string name;     // For example "waiting: rank 3's backward".
  double fraction = 0;  // Fraction of the ranks' time.
  double hours = 0;     // Sum over all ranks of the run, in the window.
};

// Returns the losses, the largest first. Waiting is split in proportion to the time that its causes cost. The
// sum of all losses and the parallel efficiency is 1.
std::vector<Loss> find_losses(const RunMetrics& metrics, const std::vector<WaitCause>& causes);

// Returns "GPU-hours" if GPUs were used, otherwise "rank-hours".
std::string_view hours_unit(const RunMetrics& metrics);
// Returns, for example, "3.1 rank-hours"; short times are in minutes or seconds.
std::string rank_time_text(double hours, const RunMetrics& metrics);

}  // namespace farandole
