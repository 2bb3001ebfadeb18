#include "farandole/bench/overhead.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace farandole {
namespace {

// Rounds with an overhead of `share` on a busy machine: noise, and every twentieth round is disturbed.
std::vector<double> noisy_rounds(double share, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(std::log1p(share), 0.05);
  std::vector<double> rounds(count);
  for (double& round : rounds) {
    round = noise(random);
    if (random() % 20 == 0) round += random() % 2 == 0 ? 1 : -1;
  }
  return rounds;
}

TEST(Overhead, IsWhatWasAdded) {
  EXPECT_NEAR(added_share(std::vector<double>(10, std::log(1.02))).value, 0.02, 1e-12);
  EXPECT_NEAR(added_share({-1, 0, 0, 0.5}).value, 0, 1e-12);
}

// The interval contains the true value about as often as it should, and is as narrow as the
// number of rounds allows.
TEST(Overhead, IntervalHoldsTheTruth) {
  int held = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const auto estimate = added_share(noisy_rounds(0.005, 200, seed));
    ASSERT_TRUE(estimate.ci95);
    EXPECT_LE(estimate.ci95->low, estimate.value);
    EXPECT_GE(estimate.ci95->high, estimate.value);
    EXPECT_LT(estimate.ci95->high - estimate.ci95->low, 0.04);
    held += estimate.ci95->low <= 0.005 && 0.005 <= estimate.ci95->high ? 1 : 0;
  }
  EXPECT_GE(held, 52);
}

TEST(Overhead, RatioOfTwo) {
  const auto ratio = ratio_of_added(noisy_rounds(0.002, 4000, 1), noisy_rounds(0.04, 1000, 2));
  ASSERT_TRUE(ratio.ci95);
  EXPECT_LT(ratio.ci95->low, 0.05);
  EXPECT_GT(ratio.ci95->high, 0.05);
  EXPECT_LT(ratio.ci95->high - ratio.ci95->low, 0.2);
}

TEST(Overhead, TooFewRoundsHaveNoInterval) {
  EXPECT_FALSE(added_share({0.1, 0.1, 0.1, 0.1, 0.1}).ci95);
  EXPECT_FALSE(ratio_of_added({0.1}, noisy_rounds(0.1, 100, 1)).ci95);
}

}  // namespace
}  // namespace farandole
