#include "farandole/analyzer/statistics/estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace farandole {
namespace {

double squares_around_mean(const std::vector<double>& values) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return sum;
}

}  // namespace

std::optional<Estimate> estimate_ratio(const std::vector<double>& above, const std::vector<double>& below) {
  const auto count = above.size();
  if (count < 6) return std::nullopt;
  const double all_below = std::accumulate(below.begin(), below.end(), 0.0);
  if (!(all_below > 0)) return std::nullopt;
  Estimate estimate;
  estimate.value = std::accumulate(above.begin(), above.end(), 0.0) / all_below;
  // To first order, the deviation of a ratio is that of (above - ratio·below) divided by the mean of below.
  const auto batches =
      std::min(count, static_cast<std::size_t>(std::lround(1.5 * std::sqrt(static_cast<double>(count)))) + 2);
  std::vector<double> deviations(batches);
  for (std::size_t i = 0; i < count; ++i)
    deviations[i * batches / count] += above[i] - estimate.value * below[i];
  const auto n = static_cast<double>(batches);
  estimate.freedom = n - 1;
  estimate.variance = squares_around_mean(deviations) * n / (n - 1) / (all_below * all_below);
  return estimate;
}

std::optional<Range> ratio_interval(double figure, const std::vector<double>& above,
                                    const std::vector<double>& below, double most) {
  const auto estimate = estimate_ratio(above, below);
  if (!estimate) return std::nullopt;
  const double margin = student_quantile(estimate->freedom) * std::sqrt(estimate->variance);
  return Range{std::clamp(figure - margin, 0.0, most), std::clamp(figure + margin, 0.0, most)};
}

Spread spread_of(const Estimate& first, const Estimate& second) {
  const double a = first.variance;
  const double b = second.variance;
  const double below = a * a / first.freedom + b * b / second.freedom;
  return {a, b, below > 0 ? (a + b) * (a + b) / below : first.freedom + second.freedom};
}

Spread spread_of(const std::vector<double>& first, const std::vector<double>& second) {
  const auto a = static_cast<double>(first.size());
  const auto b = static_cast<double>(second.size());
  const double freedom = a + b - 2;
  const double variance = (squares_around_mean(first) + squares_around_mean(second)) / freedom;
  return {variance / a, variance / b, freedom};
}

std::optional<Range> change_interval(double first, double second, const Spread& spread, bool relative) {
  const double t = student_quantile(spread.freedom);
  if (!relative) {
    const double margin = t * std::sqrt(spread.of_first + spread.of_second);
    return Range{first - second - margin, first - second + margin};
  }
  if (!(first > 0) || !(second > 0)) return std::nullopt;
  const double change = std::log(first / second);
  const double margin =
      t * std::sqrt(spread.of_first / (first * first) + spread.of_second / (second * second));
  return Range{std::expm1(change - margin), std::expm1(change + margin)};
}

double student_quantile(double freedom) {
  static constexpr std::array<double, 6> small = {12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469};
  const double n = std::max(1.0, std::floor(freedom));
  if (n <= static_cast<double>(small.size())) return small[static_cast<std::size_t>(n) - 1];
  // Cornish-Fisher expansion around the normal distribution (Abramowitz and Stegun, 26.7.5).
  constexpr double z = 1.959964;
  constexpr double z3 = z * z * z;
  constexpr double z5 = z3 * z * z;
  constexpr double z7 = z5 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

}  // namespace farandole
