// Estimates the gain of each finding's advice with a replay of the run. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <vector>

#include "farandole/analyzer/findings/verdict.h"
#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {

// Returns whether a replay can improve the findings within a short time.
bool can_replay(const RunMetrics& metrics, const std::vector<Finding>& findings);

// Adds the replayed gains to the findings. The best bucket size is found by trying several.
void add_replayed_gains(const Replay& replay, std::vector<Finding>& findings);

}  // namespace farandole
