// The steps of measure(): the metrics of one rank from interval operations on its spans, and what follows
// from those of all ranks, the overlap and the POP efficiencies with their 95 % intervals. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <vector>

#include "farandole/analyzer/metrics/interval.h"
#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/base/run/run_json.h"

namespace farandole {

// Returns all metrics except the lateness, and adds to `totals`, which has one entry per kept step. `waits`:
// when the collectives of this rank waited for the last rank.
RankMetrics measure_rank(const RankModel& rank, const Window& window, const IntervalSet& waits,
                         std::vector<StepTotals>& totals);

// From the ranks' figures: overlap, the efficiencies and the replay's error.
void add_efficiencies(RunMetrics& metrics);
// From the totals by step; after add_efficiencies() and the throughput.
void add_intervals(const RunFacts& facts, RunMetrics& metrics);

}  // namespace farandole
