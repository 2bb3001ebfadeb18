// Holds what run.json says against the ranks that a trace has. A plain function.
#pragma once

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Names in the warnings which ranks are missing, which do not belong, and which ran elsewhere than run.json
// says; gives hosts to the ranks whose trace names none.
void check_ranks(RunModel& model);

}  // namespace farandole
