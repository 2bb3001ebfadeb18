// A comparison in words. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>

#include "farandole/analyzer/compare/comparison.h"

namespace farandole {

// Returns one or two sentences with the cause. The differences of the comparison must be known.
std::string comparison_verdict(const Comparison& comparison, const Runs& now, const Runs& before);

// Returns "better", "worse" or "same"; "unknown" if there is no interval.
std::string_view verdict_text(const Difference& difference);
// Returns a value as text ("85.71 ms", "58.5 %") and a change as text ("+3.1 %", "-2.0 points").
std::string value_text(const Difference& difference, const Figure& figure);
std::string change_text(const Difference& difference, double change);
// For example "-0.4 to +3.1 %"; "–" if there is no interval.
std::string interval_text(const Difference& difference);

}  // namespace farandole
