// Order statistics, quantiles of many values, the bootstrap, and confidence intervals of figures and of
// their differences; deterministic.
// Thread safety: any thread may call this at any time. Use an object from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/base/quantile.h"

namespace farandole {

// A figure of the report, or the reason why it is unknown.
struct Figure {
  std::optional<double> value;
  std::string unknown;

  static Figure known(double number) { return {number, {}}; }
  static Figure because(std::string why) { return {std::nullopt, std::move(why)}; }
  // Unknown if the denominator is not positive.
  static Figure ratio(double numerator, double denominator, const std::string& why);
};

struct Range {
  double low = 0;
  double high = 0;
};

double mean(const std::vector<double>& values);  // `values` must not be empty.

// Distribution-free 95 % interval of the median from order statistics (the number of values below the median
// has a binomial distribution). Returns nullopt for fewer than 6 values, which are too few for 95 %.
std::optional<Range> median_interval(std::vector<double> values);

// Means of samples drawn with replacement. Equal seeds give equal samples.
class Bootstrap {
 public:
  explicit Bootstrap(std::uint64_t seed) : state_(seed) {}
  std::size_t draw(std::size_t count) { return next() % count; }  // Below `count`.
  // Draws blocks of `block` consecutive values; the first value follows the last one.
  double resampled_mean(const std::vector<double>& values, std::size_t block = 1);

 private:
  std::uint64_t next();
  std::uint64_t state_;
};

// Quantiles of any number of values in limited memory.
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
