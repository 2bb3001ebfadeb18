#include "farandole/analyzer/statistics/distribution.h"

#include <algorithm>
#include <cmath>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {
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
