// One rank's share of the metrics: interval algebra over its spans. Plain functions.
#pragma once

#include <vector>

#include "farandole/analyzer/metrics/interval.h"
#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

// All but the lateness; adds to `totals`, one entry a kept step. `waits`: when this rank's collectives waited
// for the last rank to arrive.
RankMetrics measure_rank(const RankModel& rank, const Window& window, const IntervalSet& waits,
                         std::vector<StepTotals>& totals);

}  // namespace farandole
