#include "farandole/analyzer/statistics/statistics.h"

#include <algorithm>
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

}  // namespace farandole
