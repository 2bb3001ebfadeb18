// The metrics of one rank, from interval operations on its spans. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <vector>

#include "farandole/analyzer/metrics/interval.h"
#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

// Returns all metrics except the lateness, and adds to `totals`, which has one entry per kept step. `waits`:
// when the collectives of this rank waited for the last rank.
RankMetrics measure_rank(const RankModel& rank, const Window& window, const IntervalSet& waits,
                         std::vector<StepTotals>& totals);

}  // namespace farandole
