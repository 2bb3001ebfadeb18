// Aligns the clocks of ranks whose traces have their own clocks. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Shifts every rank to the clock of the first one by the ends of collectives, which all ranks leave at nearly
// the same time. The remaining error is stored as each rank's clock_residual_us. It is nullopt for ranks
// without common collectives; their steps are only placed beside those of the first rank.
void align_by_collectives(RunModel& run);

}  // namespace farandole
