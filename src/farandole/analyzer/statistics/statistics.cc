#include "farandole/analyzer/statistics/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace farandole {

Figure Figure::ratio(double numerator, double denominator, const std::string& why) {
  return denominator > 0 ? known(numerator / denominator) : because(why);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<Range> median_interval(std::vector<double> values) {
  const auto count = values.size();
  if (count < 6) return std::nullopt;
  // The largest k with P(fewer than k of the values are below the median) <= 2.5 %.
  const double n = static_cast<double>(count);
  double cumulative = 0;
  std::size_t k = 0;
  for (; k < count / 2; ++k) {
    const double i = static_cast<double>(k);
    cumulative +=
        std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) - n * std::log(2.0));
    if (cumulative > 0.025) break;
  }
  std::sort(values.begin(), values.end());
  return Range{values[k - 1], values[count - k]};
}

std::uint64_t Bootstrap::next() {  // splitmix64
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double Bootstrap::resampled_mean(const std::vector<double>& values, std::size_t block) {
  double sum = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    at = i % block == 0 ? next() % values.size() : (at + 1) % values.size();
    sum += values[at];
  }
  return sum / static_cast<double>(values.size());
}
namespace {

constexpr double bins_per_octave = 256;
constexpr int bin_of_nothing = -1'000'000;

}  // namespace

void Distribution::add(double value) {
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = count_ == 0 ? value : std::max(max_, value);
  ++count_;
  sum_ += value;
  if (!bins_.empty()) return put_in_bin(value);
  values_.push_back(value);
  if (values_.size() <= exact_values) return;
  for (const double kept : values_) put_in_bin(kept);
  values_ = {};
}

void Distribution::put_in_bin(double value) {
  ++bins_[value > 0 ? static_cast<int>(std::floor(std::log2(value) * bins_per_octave)) : bin_of_nothing];
}

double Distribution::quantile(double fraction) const {
  if (count_ == 0) return 0;
  if (bins_.empty()) return farandole::quantile(values_, fraction);
  const auto rank = static_cast<std::uint64_t>(fraction * static_cast<double>(count_ - 1));
  std::uint64_t below = 0;
  for (const auto& [bin, count] : bins_) {
    below += count;
    if (below <= rank) continue;
    if (bin == bin_of_nothing) return std::min(min_, 0.0);
    return std::clamp(std::exp2((bin + 0.5) / bins_per_octave), min_, max_);
  }
  return max_;
}

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
