// Overlap and POP efficiencies of a measured run, with their 95 % intervals. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/base/run_json.h"

namespace farandole {

// From the ranks' figures: overlap, the efficiencies and the replay's error.
void add_efficiencies(RunMetrics& metrics);
// From the totals by step; after add_efficiencies() and the throughput.
void add_intervals(const RunFacts& facts, RunMetrics& metrics);

}  // namespace farandole
