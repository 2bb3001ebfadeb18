// Is this run better or worse than that one, by how much, and why? Plain functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/metrics.h"

namespace farandole {

enum class Change { same, better, worse };
std::string_view name_of(Change change);

// One figure of this run and of the other. `change` is relative for times and rates, and a difference for
// fractions.
struct Difference {
  std::string name;  // "throughput", "overlap", "backward ms", …
  bool relative = true;
  bool more_is_better = true;
  Figure now, before, change;
  std::optional<Range> ci95;      // of the change: bootstrap over both runs' steps
  Change verdict = Change::same;  // better or worse where the interval leaves out 0
};

struct Comparison {
  std::vector<Difference> differences;
  std::string verdict;  // one sentence, with the cause
};

// Steps follow each other, so they are drawn in blocks. Differences between one run and the next of the same
// program are not in the intervals: only repeats would show them.
Comparison compare(const RunMetrics& now, const RunMetrics& before);

// Of a difference, for people: "85.71 ms", "58.5 %", and its change: "+3.1 %", "-2.0 points".
std::string value_text(const Difference& difference, const Figure& figure);
std::string change_text(const Difference& difference, double change);

// "throughput<-5%,overlap<0.5": with % the change against the other run (of fractions in points), which must
// also be more than chance; without, the figure itself.
struct Condition {
  std::string text;  // as given
  std::string name;
  bool below = true;
  bool of_change = false;
  double bound = 0;  // % as a fraction
};
// Throws UserError that says what is wrong and what there is.
std::vector<Condition> parse_conditions(std::string_view text);

// Why the conditions say that the run fails, one line each; what is unknown fails too. Conditions of changes
// need `comparison`, else UserError.
std::vector<std::string> failures(const std::vector<Condition>& conditions, const RunMetrics& metrics,
                                  const Comparison* comparison);

}  // namespace farandole
