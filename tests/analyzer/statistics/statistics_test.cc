#include "farandole/analyzer/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace farandole {
namespace {

TEST(Quantile, InterpolatesAsNumpyDoes) {
  EXPECT_DOUBLE_EQ(quantile({7}, 0.95), 7);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.95), 3.85);
  EXPECT_DOUBLE_EQ(quantile({5, 1, 3}, 1), 5);
  EXPECT_DOUBLE_EQ(quantile({5, 1, 3}, 0), 1);
}

TEST(MedianInterval, NeedsSixValuesAndUsesTheBinomialRanks) {
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

TEST(MedianInterval, CoversTheMedianIn95PercentOfSamples) {
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

TEST(Bootstrap, RepeatsItselfAndCentresOnTheMean) {
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

TEST(Figure, OfARatioByNothingIsUnknown) {
  EXPECT_EQ(Figure::ratio(1, 0, "why").unknown, "why");
  EXPECT_EQ(*Figure::ratio(1, 4, "why").value, 0.25);
}

TEST(Estimate, OfARatioKnowsItsOwnError) {
  std::mt19937 random(12);
  std::normal_distribution<double> normal(0, 1);
  for (const double correlation : {0.0, 0.5}) {
    int missed = 0;
    constexpr int trials = 2000;
    for (int trial = 0; trial < trials; ++trial) {
      std::vector<double> above, below;
      double previous = normal(random);
      for (int step = 0; step < 200; ++step) {
        previous = correlation * previous + std::sqrt(1 - correlation * correlation) * normal(random);
        below.push_back(10 + 0.5 * normal(random));
        above.push_back(7 * (10 + previous));
      }
      const auto estimate = estimate_ratio(above, below);
      ASSERT_TRUE(estimate);
      missed +=
          std::abs(estimate->value - 7) > student_quantile(estimate->freedom) * std::sqrt(estimate->variance);
    }
    EXPECT_LE(missed, (correlation > 0 ? 0.09 : 0.065) * trials);
    EXPECT_GE(missed, 0.03 * trials);
  }
}

TEST(Estimate, NeedsSixStepsAndSomethingBelow) {
  EXPECT_FALSE(estimate_ratio({1, 2, 3, 4, 5}, {1, 1, 1, 1, 1}));
  EXPECT_FALSE(estimate_ratio(std::vector<double>(8, 1), std::vector<double>(8, 0)));
  const auto constant = estimate_ratio(std::vector<double>(8, 6), std::vector<double>(8, 2));
  ASSERT_TRUE(constant);
  EXPECT_DOUBLE_EQ(constant->value, 3);
  EXPECT_DOUBLE_EQ(constant->variance, 0);
}

TEST(Estimate, OfAShareStaysOne) {
  std::vector<double> above(40, 1), below(40, 1);
  above[3] = 0.5;
  const auto interval = ratio_interval(39.5 / 40, above, below, 1);
  ASSERT_TRUE(interval);
  EXPECT_LT(interval->low, 39.5 / 40);
  EXPECT_EQ(interval->high, 1);
  EXPECT_FALSE(ratio_interval(0.5, {1, 2}, {3, 4}, 1));
}

TEST(Estimate, OfStudentsTIsThatOfTables) {
  EXPECT_NEAR(student_quantile(1), 12.706, 1e-3);
  EXPECT_NEAR(student_quantile(4.9), 2.776, 1e-3);
  EXPECT_NEAR(student_quantile(7), 2.3646, 2e-3);
  EXPECT_NEAR(student_quantile(12), 2.1788, 1e-3);
  EXPECT_NEAR(student_quantile(30), 2.0423, 1e-3);
  EXPECT_NEAR(student_quantile(1e9), 1.95996, 1e-4);
}

TEST(Estimate, OfRepeatsPoolsWhatBothSidesScatter) {
  const auto spread = spread_of(std::vector<double>{10, 12}, std::vector<double>{20, 20, 26});
  EXPECT_DOUBLE_EQ(spread.freedom, 3);
  EXPECT_DOUBLE_EQ(spread.of_first, 26.0 / 3 / 2);
  EXPECT_DOUBLE_EQ(spread.of_second, 26.0 / 3 / 3);
  const auto single = spread_of(std::vector<double>{10}, std::vector<double>{20, 22});
  EXPECT_DOUBLE_EQ(single.freedom, 1);
  EXPECT_DOUBLE_EQ(single.of_first, 2);
  EXPECT_DOUBLE_EQ(single.of_second, 1);
}

TEST(Estimate, OfAChangeIsRelativeWhereAsked) {
  const Spread none{0, 0, 10};
  EXPECT_DOUBLE_EQ(change_interval(3, 2, none, false)->low, 1);
  EXPECT_NEAR(change_interval(3, 2, none, true)->high, 0.5, 1e-12);
  EXPECT_FALSE(change_interval(3, 0, none, true));
  const auto wide = change_interval(3, 2, {0.09, 0, 10}, true);
  EXPECT_LT(wide->low, 0.5 - 0.2);
  EXPECT_GT(wide->high, 0.5 + 0.2);
}

}  // namespace
}  // namespace farandole
