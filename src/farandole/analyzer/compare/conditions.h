// When a run is worse than it may be, for scripts: --fail-on. Plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/compare/comparison.h"

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

// Throws UserError where a condition is about a change: for runs that are compared with none.
void refuse_changes(const std::vector<Condition>& conditions);

inline constexpr const char* nothing_to_compare_with = "none of the runs of --against can be read";

// Why the conditions say that the runs fail, one line each. What is unknown fails too, and its line says so:
// figures that are, and changes beyond their bound of which nothing tells whether they are chance, or of
// which there is no `comparison` (nullptr).
std::vector<std::string> failures(const std::vector<Condition>& conditions, const Runs& runs,
                                  const Comparison* comparison);

}  // namespace farandole
