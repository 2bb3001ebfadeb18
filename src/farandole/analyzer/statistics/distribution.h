// Quantiles of any number of values in limited memory. A plain value.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace farandole {

// Exact up to `exact_values` values. Beyond that, values are kept in logarithmic bins, and quantiles are
// wrong by at most 0.3 %; values of 0 and below share one bin. Count, sum, minimum and maximum stay exact.
class Distribution {
 public:
  static constexpr std::size_t exact_values = 1 << 16;

  void add(double value);
  std::uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  double quantile(double fraction) const;  // 0 if there is no value.

 private:
  void put_in_bin(double value);

  std::vector<double> values_;
  std::map<int, std::uint64_t> bins_;
  std::uint64_t count_ = 0;
  double sum_ = 0;
  double min_ = 0;
  double max_ = 0;
};

}  // namespace farandole
