// Order statistics and the bootstrap; deterministic. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <functional>
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

}  // namespace farandole
