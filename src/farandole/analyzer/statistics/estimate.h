// What chance does to a figure, and by how much two of them differ. Plain functions.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

// A figure of one run, the variance that its steps give it, and the degrees of freedom, as of Student's t,
// with which that variance is known.
struct Estimate {
  double value = 0;
  double variance = 0;
  double freedom = 0;
};

// sum(above) / sum(below) of consecutive steps. Steps that follow each other are alike, so the variance is
// that of about 1.5·√n batches of them. nullopt for fewer than 6 steps, or where a batch has nothing below.
std::optional<Estimate> estimate_ratio(const std::vector<double>& above, const std::vector<double>& below);

// The 95 % interval of `figure`, which is that ratio or one of a window that begins and ends a little
// otherwise, within [0, most]; nullopt as above.
std::optional<Range> ratio_interval(double figure, const std::vector<double>& above,
                                    const std::vector<double>& below, double most);

// Of two figures: each one's variance, and the degrees of freedom of their difference.
struct Spread {
  double of_first = 0;
  double of_second = 0;
  double freedom = 0;
};

// Of two single runs (Welch, Biometrika 34, 1947).
Spread spread_of(const Estimate& first, const Estimate& second);
// Of the means of repeated runs, which scatter alike on both sides; one side may have a single run. There
// must be three values in all.
Spread spread_of(const std::vector<double>& first, const std::vector<double>& second);

// 95 % interval of first - second, or of first / second - 1 where `relative`; nullopt where that is not above
// 0.
std::optional<Range> change_interval(double first, double second, const Spread& spread, bool relative);

// What Student's t exceeds in 2.5 % of cases, to 0.1 % for whole degrees of freedom (others are rounded
// down).
double student_quantile(double freedom);

}  // namespace farandole
