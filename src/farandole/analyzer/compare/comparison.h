// Compares runs: whether a run is better or worse than another, by how much, and why. Checks the conditions
// of --fail-on. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

enum class Trend { same, better, worse };

using Runs = std::vector<const RunMetrics*>;  // Repetitions of one run; not empty.

// One figure of both sides; for several runs, their mean. `change` is relative for times and rates, and
// a difference for fractions.
struct Difference {
  std::string name;  // "throughput", "overlap", "backward_ms", …
  bool relative = true;
  bool more_is_better = true;
  Figure now, before, change;
  std::optional<Range> ci95;  // Interval of `change`.
  Trend trend = Trend::same;  // better or worse if the interval does not contain 0.

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
std::string_view trend_text(const Difference& difference);
// Returns a value as text ("85.71 ms", "58.5 %") and a change as text ("+3.1 %", "-2.0 points").
std::string value_text(const Difference& difference, const Figure& figure);
std::string change_text(const Difference& difference, double change);
// For example "-0.4 to +3.1 %"; "–" if there is no interval.
std::string interval_text(const Difference& difference);

// For example "throughput<-5%,overlap<0.5". With %, the condition checks the change against the other run
// (for fractions, in points), and the change must be significant. Without %, it checks the figure itself.
struct Condition {
  std::string text;  // The condition as the user wrote it.
  std::string name;
  bool below = true;
  bool of_change = false;
  double bound = 0;  // A percentage is stored as a fraction.
};
// Throws: UserError if a condition is wrong; the message lists the known figures.
std::vector<Condition> parse_conditions(std::string_view text);

// Throws: UserError if a condition checks a change. Call this if there is no other run.
void refuse_changes(const std::vector<Condition>& conditions);

inline constexpr const char* nothing_to_compare_with = "none of the runs of --against can be read";

// Returns one line for each condition that fails. A condition also fails if it cannot be checked, and
// its line says so: the figure is unknown, no interval shows whether the change is chance, or there
// is no `comparison` (nullptr).
std::vector<std::string> failures(const std::vector<Condition>& conditions, const Runs& runs,
                                  const Comparison* comparison);

}  // namespace farandole
