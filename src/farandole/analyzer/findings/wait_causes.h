// Why ranks waited in collectives: what made the rank that came last come late. Plain functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

struct WaitCause {
  std::string phase;       // of the last rank, in which it took longer than the others; "" none explains it
  std::size_t rank_index;  // of the last rank
  double seconds = 0;      // that all ranks waited together
};

// Each collective's waiting goes to the rank that came last, shared among the phases in which that rank took
// longer in this step than the others' median. What its phases do not explain, and what the clocks may have
// made up, has no phase. The largest first; they add up to all waiting in collectives.
std::vector<WaitCause> find_wait_causes(const RunMetrics& metrics);

}  // namespace farandole
