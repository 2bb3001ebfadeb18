// Order statistics and the bootstrap, deterministic. Plain functions, usable from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/base/quantile.h"

namespace farandole {

// A number of the report, or the reason why it cannot be known.
struct Figure {
  std::optional<double> value;
  std::string unknown;

  static Figure known(double number) { return {number, {}}; }
  static Figure because(std::string why) { return {std::nullopt, std::move(why)}; }
  // Unknown for a denominator that is not above 0.
  static Figure ratio(double numerator, double denominator, const std::string& why);
};

struct Range {
  double low = 0;
  double high = 0;
};

double mean(const std::vector<double>& values);  // of at least one

// Distribution-free 95 % interval of the median from order statistics (the binomial distribution of how many
// values lie below it); nullopt for fewer than 6 values, which cannot give 95 %.
std::optional<Range> median_interval(std::vector<double> values);

// Means of samples drawn with replacement; the same seed draws the same.
class Bootstrap {
 public:
  explicit Bootstrap(std::uint64_t seed) : state_(seed) {}
  std::size_t draw(std::size_t count) { return next() % count; }  // below `count`
  // In blocks of `block` values that follow each other (the last one's neighbour is the first).
  double resampled_mean(const std::vector<double>& values, std::size_t block = 1);

 private:
  std::uint64_t next();
  std::uint64_t state_;
};

}  // namespace farandole
