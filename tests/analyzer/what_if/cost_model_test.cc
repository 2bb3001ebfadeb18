#include "farandole/analyzer/what_if/cost_model.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"

namespace farandole {
namespace {

TEST(CostModel, FindsLatencyAndBandwidthInSpiteOfSingleDelays) {
  std::vector<CostSample> samples;
  for (const double bytes : {1e3, 1e5, 1e6, 8e6})
    for (int i = 0; i < 20; ++i) samples.push_back({bytes, (i == 7 ? 50.0 : 1.0) * (20'000 + bytes / 10)});
  const auto model = fit_costs(samples);
  ASSERT_TRUE(model.known());
  EXPECT_NEAR(model.line.alpha_ns, 20'000, 1);
  EXPECT_NEAR(model.line.beta_ns, 0.1, 1e-6);
  EXPECT_EQ(model.split_bytes, 0);
  EXPECT_EQ(model.sizes, 4U);
  EXPECT_NEAR(model.spread, 0, 1e-6);
}

TEST(CostModel, TakesAnotherLineWhereOneDoesNotDo) {
  std::vector<CostSample> samples;
  for (const double bytes : {1e4, 3e4, 1e5, 3e5})
    for (int i = 0; i < 5; ++i) samples.push_back({bytes, 1'000 + bytes / 40});
  for (const double bytes : {3e6, 1e7, 3e7})
    for (int i = 0; i < 5; ++i) samples.push_back({bytes, 1'000 + bytes / 8});
  const auto model = fit_costs(samples);
  ASSERT_GT(model.split_bytes, 3e5);
  ASSERT_LT(model.split_bytes, 3e6);
  EXPECT_NEAR(model.at(2e5), 6'000, 60);
  EXPECT_NEAR(model.at(2e7), 2.5e6, 2.5e4);
}

TEST(CostModel, OneSizeHasABandwidthButNoLatency) {
  const auto model = fit_costs(std::vector<CostSample>(10, {1e6, 2e5}));
  EXPECT_EQ(model.sizes, 1U);
  EXPECT_EQ(model.line.alpha_ns, 0);
  EXPECT_NEAR(model.at(2e6), 4e5, 1);
}

TEST(CostModel, SaysSoWhereThereIsTooLittle) {
  EXPECT_FALSE(fit_costs({}).known());
  EXPECT_FALSE(fit_costs({{1e6, 1e5}, {2e6, 2e5}}).known());
  EXPECT_FALSE(fit_costs(std::vector<CostSample>(10, {1e6, 0})).known());  // shorter than clocks resolve
}

TEST(CostModel, IsNeverNegativeAndNeverFasterWithMoreBytes) {
  std::mt19937 random(seed(4));
  for (int round = 0; round < 300; ++round) {
    std::vector<CostSample> samples;
    const int sizes = 1 + static_cast<int>(random() % 8);
    for (int s = 0; s < sizes; ++s) {
      const double bytes = std::pow(10.0, static_cast<double>(random() % 800) / 100);
      for (int i = 0; i < 6; ++i) samples.push_back({bytes, 1 + static_cast<double>(random() % 1'000'000)});
    }
    const auto model = fit_costs(samples);
    ASSERT_TRUE(model.known());
    for (double bytes = 1; bytes < 1e9; bytes *= 3) {
      EXPECT_GE(model.at(bytes), 0);
      EXPECT_GE(model.at(bytes * 3), 0.9 * model.at(bytes)) << bytes;
    }
  }
}

}  // namespace
}  // namespace farandole
