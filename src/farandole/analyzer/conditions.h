// When a run is worse than it may be, for scripts: --fail-on. Plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/comparison.h"

namespace farandole {

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

// Why the conditions say that the runs fail, one line each. What is unknown fails too, and its line says so:
// figures that are, and changes beyond their bound of which nothing tells whether they are chance. Conditions
// of changes need `comparison`, else UserError.
std::vector<std::string> failures(const std::vector<Condition>& conditions, const Runs& runs,
                                  const Comparison* comparison);

}  // namespace farandole
