// Brings ranks whose traces have clocks of their own onto one. A plain function.
#pragma once

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Shifts every rank to the first one's clock, by the ends of collectives, which all ranks leave at nearly the
// same time, and states in each one's clock_residual_us what is left open: nullopt for ranks that have not
// the same collectives, whose steps are only laid beside the first one's.
void align_by_collectives(RunModel& run);

}  // namespace farandole
