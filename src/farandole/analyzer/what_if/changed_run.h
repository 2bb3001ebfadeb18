// A run's own steps, run again under a scenario. Plain values and functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farandole/analyzer/what_if/scenario.h"
#include "farandole/analyzer/what_if/step_simulation.h"
#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {

struct ChangedRun {
  SimulatedRun run;
  std::vector<std::string> notes;  // what was assumed
};

// `cost_factor`: times what transfers cost. Of the steps, the first that all ranks together need no more than
// `most_operations` for. The replay is known().
ChangedRun run_changed(const Replay& replay, const Scenario& scenario, double cost_factor,
                       std::size_t most_operations);

}  // namespace farandole
