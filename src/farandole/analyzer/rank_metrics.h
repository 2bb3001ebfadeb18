// One rank's share of the metrics: interval algebra over its spans. Plain functions.
#pragma once

#include <vector>

#include "farandole/analyzer/interval.h"
#include "farandole/analyzer/metrics.h"

namespace farandole {

using RankWaits = std::vector<Interval>;

// All but the lateness. `waits`: when this rank's collectives waited for the last rank to arrive.
RankMetrics measure_rank(const RankModel& rank, const Window& window, const IntervalSet& waits);

}  // namespace farandole
