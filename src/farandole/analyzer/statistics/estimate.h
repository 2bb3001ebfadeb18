// Confidence intervals of figures and of their differences. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

// A figure of one run, its variance estimated from its steps, and the degrees of freedom of
// that variance (Student's t).
struct Estimate {
  double value = 0;
  double variance = 0;
  double freedom = 0;
};

// Returns sum(above) / sum(below) over consecutive steps. Consecutive steps are similar; therefore the
// variance is that of about 1.5·√n batches of them. Returns nullopt for fewer than 6 steps, or if `below` is
// 0 in all of them.
std::optional<Estimate> estimate_ratio(const std::vector<double>& above, const std::vector<double>& below);

// Returns the 95 % interval of `figure` within [0, most]. `figure` is this ratio, or the ratio in a window
// with slightly different begin and end. Returns nullopt in the same cases.
std::optional<Range> ratio_interval(double figure, const std::vector<double>& above,
                                    const std::vector<double>& below, double most);

// The variances of two figures, and the degrees of freedom of their difference.
struct Spread {
  double of_first = 0;
  double of_second = 0;
  double freedom = 0;
};

// For two single runs (Welch, Biometrika 34, 1947).
Spread spread_of(const Estimate& first, const Estimate& second);
// For the means of repeated runs, which are assumed to have equal variance on both sides. One side may have a
// single run. There must be at least three values in total.
Spread spread_of(const std::vector<double>& first, const std::vector<double>& second);

// Returns the 95 % interval of first - second, or of first / second - 1 if `relative`. Returns nullopt if
// `relative` and the divisor is not positive.
std::optional<Range> change_interval(double first, double second, const Spread& spread, bool relative);

// Returns the 97.5 % quantile of Student's t, accurate to 0.1 % for whole degrees of freedom. Other
// degrees are rounded down.
double student_quantile(double freedom);

}  // namespace farandole
