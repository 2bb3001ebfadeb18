// Tests predictions: a run predicts other runs that were measured. Plain values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {

struct HeldOutResult {
  std::filesystem::path path;
  Scenario scenario;        // How it differs from the predicting run.
  std::string unknown;      // Why there is no prediction; then the other members are empty.
  double predicted_ms = 0;  // Median step.
  double measured_ms = 0;
  Range measured_ci95{};
  Range band{};      // Band of the prediction.
  double error = 0;  // predicted / measured - 1

  std::string conditions() const { return scenario.text.empty() ? "unchanged" : scenario.text; }
  // Returns, for example, "runs/b (ranks=4): unknown: the run reduces no buckets".
  std::string why_not() const { return path.string() + " (" + conditions() + "): unknown: " + unknown; }
};

struct Validation {
  std::filesystem::path base;
  Figure base_ms;  // Median step.
  std::vector<HeldOutResult> runs;
  // Statistics of the absolute errors; no value if no run was predicted.
  std::optional<double> median_error, p95_error;
};

// Predicts each run from the differences between its run.json and that of the predicting run (bucket
// size, ranks) and from the given conditions. Damaged runs, and runs with another compression, are
// unknown, with the reason.
// Throws: UserError if a run does not exist.
Validation validate(const std::filesystem::path& base, const Replay& replay,
                    const std::vector<HeldOutRun>& runs);

}  // namespace farandole
