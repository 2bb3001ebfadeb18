// The learning rate's values at hand-computed steps and its laws at random ones.
#include "farandole/train/learning_rate.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"

namespace farandole {
namespace {

TEST(LearningRate, ScalesByTheWorldSize) {
  EXPECT_DOUBLE_EQ((LearningRate{.base = 0.01, .world_size = 8}).at(0), 0.08);
  EXPECT_DOUBLE_EQ((LearningRate{.base = 0.01, .world_size = 8, .scale = false}).at(1000), 0.01);
  EXPECT_DOUBLE_EQ((LearningRate{.base = 0.01}).at(5), 0.01);
}

// Horovod's warm-up: base · (1 + (N - 1) · step / W).
TEST(LearningRate, WarmsUpFromOneRanksRate) {
  const LearningRate rate{.base = 0.1, .world_size = 4, .warmup_steps = 10};
  EXPECT_DOUBLE_EQ(rate.at(0), 0.1);
  EXPECT_DOUBLE_EQ(rate.at(1), 0.13);
  EXPECT_DOUBLE_EQ(rate.at(5), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(9), 0.37);
  EXPECT_DOUBLE_EQ(rate.at(10), 0.4);
  EXPECT_DOUBLE_EQ(rate.at(11), 0.4);
}

TEST(LearningRate, FollowsACosineToTheMinimum) {
  LearningRate rate{.base = 1, .schedule = LearningRate::Schedule::cosine, .total_steps = 100};
  EXPECT_DOUBLE_EQ(rate.at(0), 1);
  EXPECT_NEAR(rate.at(25), 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(rate.at(50), 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(rate.at(100), 0);
  EXPECT_DOUBLE_EQ(rate.at(1'000'000), 0);
  rate.minimum = 0.2;
  EXPECT_NEAR(rate.at(50), 0.6, 1e-12);
  EXPECT_DOUBLE_EQ(rate.at(100), 0.2);
  rate.warmup_steps = 50;  // the cosine has the second half
  EXPECT_DOUBLE_EQ(rate.at(50), 1);
  EXPECT_NEAR(rate.at(75), 0.6, 1e-12);
}

TEST(LearningRate, StaysAtThePeakWhereNoStepsAreLeftForTheCosine) {
  const LearningRate rate{.base = 0.5,
                          .world_size = 2,
                          .warmup_steps = 20,
                          .schedule = LearningRate::Schedule::cosine,
                          .total_steps = 20};
  EXPECT_DOUBLE_EQ(rate.at(10), 0.75);
  EXPECT_DOUBLE_EQ(rate.at(20), 1);
}

TEST(LearningRate, HasTheSchedulesOfPyTorch) {
  LearningRate rate{.base = 1, .total_steps = 101};
  rate.schedule = LearningRate::Schedule::step;
  rate.step_size = 30;
  EXPECT_DOUBLE_EQ(rate.at(29), 1);
  EXPECT_DOUBLE_EQ(rate.at(30), 0.1);
  EXPECT_DOUBLE_EQ(rate.at(60), 0.01);
  rate.schedule = LearningRate::Schedule::polynomial;
  rate.power = 2;
  EXPECT_DOUBLE_EQ(rate.at(0), 1);
  EXPECT_NEAR(rate.at(50), std::pow(51.0 / 101, 2), 1e-12);
  EXPECT_DOUBLE_EQ(rate.at(101), 0);
  rate.schedule = LearningRate::Schedule::one_cycle;  // OneCycleLR(max_lr=1, total_steps=101)
  EXPECT_DOUBLE_EQ(rate.at(0), 0.04);
  EXPECT_NEAR(rate.at(15), 0.52, 1e-12);
  EXPECT_NEAR(rate.at(30), 1, 1e-12);
  EXPECT_NEAR(rate.at(100), 4e-6, 1e-12);
}

TEST(LearningRate, RisesThenFallsWithinItsBounds) {
  std::mt19937 random(seed(3));
  for (int i = 0; i < 300; ++i) {
    LearningRate rate{
        .base = 1e-4 * (1 + random() % 1000),
        .world_size = static_cast<int>(1 + random() % 64),
        .scale = random() % 2 == 0,
        .warmup_steps = static_cast<std::int64_t>(random() % 50),
        .schedule = random() % 2 == 0 ? LearningRate::Schedule::cosine : LearningRate::Schedule::constant,
        .total_steps = static_cast<std::int64_t>(random() % 300)};
    rate.minimum = rate.base * 0.1;
    for (std::int64_t step = 0; step < 320; ++step) {
      const double now = rate.at(step), next = rate.at(step + 1);
      const bool cosine = rate.schedule == LearningRate::Schedule::cosine;
      ASSERT_GE(now, (cosine ? rate.minimum : rate.base) * (1 - 1e-12));
      ASSERT_LE(now, rate.peak() * (1 + 1e-12));
      if (step + 1 <= rate.warmup_steps) {
        ASSERT_GE(next, now * (1 - 1e-12)) << step;
      } else {
        ASSERT_LE(next, now * (1 + 1e-12)) << step;
      }
    }
  }
}

}  // namespace
}  // namespace farandole
