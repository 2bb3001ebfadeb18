// Conditions of --fail-on, for scripts. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/compare/comparison.h"

namespace farandole {

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
