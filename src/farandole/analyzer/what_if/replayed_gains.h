// What a finding's change would bring, by the run's own replay: between "up to" and nothing. Plain functions.
#pragma once

#include <vector>

#include "farandole/analyzer/findings/verdict.h"
#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {

// Whether a replay can say more of them, in a time that nobody notices.
bool can_replay(const RunMetrics& metrics, const std::vector<Finding>& findings);
// Few where the changes are to all steps alike.
ReplayedSteps steps_to_replay(const std::vector<Finding>& findings);

// Adds to the findings what the replay says of their changes; which bucket size is best, it tries out.
void add_replayed_gains(const Replay& replay, std::vector<Finding>& findings);

}  // namespace farandole
