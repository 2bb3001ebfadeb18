#include "farandole/analyzer/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace farandole {
namespace {

TEST(Quantile, interpolates_as_numpy_does) {
  EXPECT_DOUBLE_EQ(quantile({7}, 0.95), 7);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.95), 3.85);
  EXPECT_DOUBLE_EQ(quantile({5, 1, 3}, 1), 5);
  EXPECT_DOUBLE_EQ(quantile({5, 1, 3}, 0), 1);
}

TEST(MedianInterval, needs_six_values_and_uses_the_binomial_ranks) {
  EXPECT_FALSE(median_interval({1, 2, 3, 4, 5}));
  const auto six = median_interval({6, 5, 4, 3, 2, 1});
  ASSERT_TRUE(six);
  EXPECT_EQ(six->low, 1);
  EXPECT_EQ(six->high, 6);
  std::vector<double> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1);
  const auto interval = median_interval(hundred);  // the 40th and 61st value, as in tables
  EXPECT_EQ(interval->low, 40);
  EXPECT_EQ(interval->high, 61);
}

TEST(MedianInterval, covers_the_median_in_95_percent_of_samples) {
  std::mt19937 random(3);
  std::exponential_distribution<double> distribution(1);
  int covered = 0;
  constexpr int rounds = 2000;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> values(31);
    std::generate(values.begin(), values.end(), [&] { return distribution(random); });
    const auto interval = median_interval(values);
    covered += interval->low <= std::log(2.0) && std::log(2.0) <= interval->high ? 1 : 0;
  }
  EXPECT_GE(covered, 0.94 * rounds);
  EXPECT_LE(covered, 0.985 * rounds);
}

TEST(Bootstrap, repeats_itself_and_centres_on_the_mean) {
  const std::vector<double> values = {1, 2, 3, 10};
  Bootstrap a(5);
  Bootstrap b(5);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double mean = a.resampled_mean(values);
    ASSERT_EQ(mean, b.resampled_mean(values));
    sum += mean;
  }
  EXPECT_NEAR(sum / 10'000, 4, 0.06);
}

TEST(Figure, of_a_ratio_by_nothing_is_unknown) {
  EXPECT_EQ(Figure::ratio(1, 0, "why").unknown, "why");
  EXPECT_EQ(*Figure::ratio(1, 4, "why").value, 0.25);
}

}  // namespace
}  // namespace farandole
