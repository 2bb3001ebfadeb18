// Simulates the steps of a run under a scenario. Plain values and pure functions.
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
  std::vector<std::string> notes;  // Assumptions of the prediction.
};

// `cost_factor` multiplies the cost of transfers. Only the first steps are used, so that all ranks together
// need at most `most_operations`. `replay` must be known().
ChangedRun run_changed(const Replay& replay, const Scenario& scenario, double cost_factor,
                       std::size_t most_operations);

}  // namespace farandole
