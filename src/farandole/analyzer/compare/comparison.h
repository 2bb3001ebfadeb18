// Is this run better or worse than that one, by how much, and why? Plain functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

enum class Change { same, better, worse };
std::string_view name_of(Change change);

using Runs = std::vector<const RunMetrics*>;  // repeats of one run; not empty

// One figure of these runs and of the others, of several runs the mean. `change` is relative for times and
// rates, and a difference for fractions.
struct Difference {
  std::string name;  // "throughput", "overlap", "backward ms", …
  bool relative = true;
  bool more_is_better = true;
  Figure now, before, change;
  std::optional<Range> ci95;      // of the change
  Change verdict = Change::same;  // better or worse where the interval leaves out 0

  bool is_nothing() const { return now.value && before.value && *now.value == 0 && *before.value == 0; }
};

struct Comparison {
  std::vector<Difference> differences;
  std::string verdict;        // one sentence, with the cause
  bool between_runs = false;  // the intervals hold by how much one run differs from the next
};

// Where either side has repeats, the intervals are those of the means of runs. Of one run a side they are
// those of its steps: by how much one run of the same program differs from the next is then unknown, and the
// verdict says so.
Comparison compare(const Runs& now, const Runs& before);

// "better", "worse", "same"; "unknown" where no interval tells a change from chance.
std::string_view verdict_text(const Difference& difference);
// Of a difference, for people: "85.71 ms", "58.5 %", and its change: "+3.1 %", "-2.0 points".
std::string value_text(const Difference& difference, const Figure& figure);
std::string change_text(const Difference& difference, double change);
std::string interval_text(const Difference& difference);  // "-0.4 to +3.1 %"; "–" where there is none

// Every figure that is compared, and that conditions may name; of several runs their mean.
std::vector<std::pair<std::string, Figure>> figures_of(const Runs& runs);

const Difference* find_difference(const Comparison& comparison, std::string_view name);

}  // namespace farandole
