// Back-tests of what-if: a run predicts others that were made. Plain values and functions.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {

struct HeldOutResult {
  std::filesystem::path path;
  Scenario scenario;        // how it differs from the run that predicts
  std::string unknown;      // why there is no prediction; then the rest is empty
  double predicted_ms = 0;  // median of a step
  double measured_ms = 0;
  Range measured_ci95{};
  Range band{};      // of the prediction
  double error = 0;  // predicted / measured - 1
};

struct Validation {
  std::filesystem::path base;
  Figure base_ms;  // median of a step
  std::vector<HeldOutResult> runs;
  // Of the errors' sizes; none where nothing was predicted.
  std::optional<double> median_error, p95_error;
};

// Predicts each run from what its run.json says of it, where that differs from the predicting run's (bucket
// size, ranks, compression), and the conditions given with it. Damaged
// runs are unknown, with the reason; throws UserError where there is none.
Validation validate(const std::filesystem::path& base, const Replay& replay,
                    const std::vector<HeldOutRun>& runs);

}  // namespace farandole
