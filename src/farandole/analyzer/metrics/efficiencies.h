// The overlap and the POP efficiencies of a run, from the figures of its ranks, and their 95 % intervals.
// Thread safety: any thread may call this at any time.
#pragma once

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

// Adds the overlap, the efficiencies and the replay's error.
void add_efficiencies(RunMetrics& metrics);
// From the totals by step; after add_efficiencies() and the throughput.
void add_intervals(const RunFacts& facts, RunMetrics& metrics);

}  // namespace farandole
