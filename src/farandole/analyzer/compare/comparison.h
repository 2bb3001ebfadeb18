// Compares runs: whether a run is better or worse than another, by how much, and why. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

enum class Change { same, better, worse };

using Runs = std::vector<const RunMetrics*>;  // Repetitions of one run; not empty.

// One figure of both sides; for several runs, their mean. `change` is relative for times and rates, and
// a difference for fractions.
struct Difference {
  std::string name;  // "throughput", "overlap", "backward_ms", …
  bool relative = true;
  bool more_is_better = true;
  Figure now, before, change;
  std::optional<Range> ci95;      // Interval of `change`.
  Change verdict = Change::same;  // better or worse if the interval does not contain 0.

  bool is_nothing() const { return now.value && before.value && *now.value == 0 && *before.value == 0; }
};

struct Comparison {
  std::vector<Difference> differences;
  std::string verdict;        // One sentence with the cause.
  bool between_runs = false;  // The intervals include the run-to-run variance.
};

// If either side has repeated runs, the intervals are those of the means of runs. For one run per side, the
// intervals are those of its steps; then the run-to-run variance is unknown, and the verdict says so.
Comparison compare(const Runs& now, const Runs& before);

// Returns every figure that is compared and that a condition may name; for several runs, their mean.
std::vector<std::pair<std::string, Figure>> figures_of(const Runs& runs);

const Difference* find_difference(const Comparison& comparison, std::string_view name);

// Returns "better", "worse" or "same"; "unknown" if there is no interval.
std::string_view verdict_text(const Difference& difference);
// Returns a value as text ("85.71 ms", "58.5 %") and a change as text ("+3.1 %", "-2.0 points").
std::string value_text(const Difference& difference, const Figure& figure);
std::string change_text(const Difference& difference, double change);
// For example "-0.4 to +3.1 %"; "–" if there is no interval.
std::string interval_text(const Difference& difference);

}  // namespace farandole
