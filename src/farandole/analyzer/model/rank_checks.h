// Compares run.json with the ranks of a trace. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Adds warnings for ranks that are missing, that do not belong to the run, or that ran on another host than
// run.json records. Sets the hosts of ranks whose trace has none.
void check_ranks(RunModel& model);

}  // namespace farandole
