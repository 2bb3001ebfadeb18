#include "farandole/analyzer/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace farandole {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

SizedRun run_of(int ranks, double batch, std::vector<double> periods_ms) {
  return {"runs/n" + std::to_string(ranks), ranks, Figure::known(batch), std::move(periods_ms)};
}

TEST(Scaling, is_weak_for_the_same_batch_per_rank) {
  const auto scaling =
      measure_scaling({run_of(4, 128, {125, 125}), run_of(1, 32, {100, 100}), run_of(2, 64, {100, 100})});
  EXPECT_EQ(scaling.unknown, "");
  EXPECT_EQ(scaling.mode, "weak");
  EXPECT_EQ(scaling.base_ranks, 1);
  ASSERT_THAT(scaling.points, SizeIs(3));
  EXPECT_DOUBLE_EQ(scaling.points[0].efficiency, 1);
  EXPECT_DOUBLE_EQ(scaling.points[1].efficiency, 1);
  EXPECT_DOUBLE_EQ(scaling.points[2].efficiency, 0.8);
  EXPECT_DOUBLE_EQ(scaling.points[2].ci95.low, 0.8);
}

TEST(Scaling, is_strong_for_the_same_global_batch) {
  const auto scaling = measure_scaling({run_of(2, 64, {100, 100}), run_of(4, 64, {80, 80})});
  EXPECT_EQ(scaling.mode, "strong");
  EXPECT_DOUBLE_EQ(scaling.points[1].efficiency, 2 * 100 / (4 * 80.0));
}

TEST(Scaling, joins_repeats_and_gives_an_interval_around_the_efficiency) {
  std::vector<double> noisy;
  for (int i = 0; i < 200; ++i) noisy.push_back(100 + i % 7);
  const auto scaling = measure_scaling(
      {run_of(1, 32, noisy), run_of(2, 64, noisy), run_of(2, 64, std::vector<double>(200, 123))});
  ASSERT_THAT(scaling.points, SizeIs(2));
  const auto& point = scaling.points[1];
  EXPECT_NEAR(point.step_ms, 113, 0.1);
  EXPECT_LT(point.ci95.low, point.efficiency);
  EXPECT_GT(point.ci95.high, point.efficiency);
  EXPECT_LT(point.ci95.high - point.ci95.low, 0.03);
}

TEST(Scaling, says_why_it_is_unknown) {
  EXPECT_THAT(measure_scaling({run_of(2, 64, {1})}).unknown, HasSubstr("at least two sizes"));
  EXPECT_THAT(measure_scaling({run_of(1, 32, {1}), run_of(2, 50, {1})}).unknown, HasSubstr("neither"));
  EXPECT_THAT(measure_scaling({run_of(1, 32, {1}), run_of(1, 50, {1})}).unknown,
              HasSubstr("differ in global batch"));
  EXPECT_THAT(measure_scaling({run_of(1, 32, {1}), {"x", 2, Figure::because("no run.json"), {1}}}).unknown,
              HasSubstr("x is unknown: no run.json"));
  EXPECT_THAT(measure_scaling({run_of(1, 32, {}), run_of(2, 64, {1})}).unknown, HasSubstr("no steps"));
}

}  // namespace
}  // namespace farandole
