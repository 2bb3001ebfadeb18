// Finds why ranks waited in collectives: what delayed the last rank. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
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

}  // namespace farandole
