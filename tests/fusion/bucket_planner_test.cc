#include "farandole/fusion/bucket_planner.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <stdexcept>

#include "lane.h"

namespace farandole {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

std::vector<TensorSpec> tensors(int count, std::int64_t elements) {
  std::vector<TensorSpec> result;
  for (int i = 0; i < count; ++i) result.push_back({"t" + std::to_string(i), {elements}, DType::float32});
  return result;
}

// Runs until the end on one rank. `time` returns the duration of a step in milliseconds.
Autotuner tune(const std::vector<std::size_t>& sizes,
               const std::function<double(std::size_t bucket_bytes, int step)>& time) {
  Autotuner tuner(sizes);
  const int bound = static_cast<int>(4 * Autotuner::rounds * Autotuner::steps_a_turn);
  while (!tuner.finished()) {
    if (tuner.record(time(tuner.current(), tuner.steps()))) tuner.decide(tuner.medians());
    if (tuner.steps() > bound) throw std::runtime_error("it does not end");
  }
  return tuner;
}

const std::vector<std::size_t> four = {25 * mib, 100 * mib, 2 * mib, 8 * mib};

TEST(Autotuner, FindsTheBest) {
  for (std::size_t best = 0; best < four.size(); ++best) {
    const auto tuner = tune(four, [&](std::size_t bytes, int) { return bytes == four[best] ? 8.0 : 10.0; });
    EXPECT_EQ(tuner.current(), four[best]) << best;
    EXPECT_EQ(tuner.milliseconds(), 8.0);
    EXPECT_EQ(tuner.default_milliseconds(), best == 0 ? 8.0 : 10.0);
  }
}

TEST(Autotuner, DropsTheHopelessAfterOneTurn) {
  int slow = 0;
  const auto tuner = tune(four, [&](std::size_t bytes, int) {
    slow += bytes == four[2] ? 1 : 0;
    return bytes == four[2] ? 20.0 : 10.0;
  });
  EXPECT_EQ(slow, Autotuner::steps_a_turn);
  EXPECT_EQ(tuner.current(), four[0]);
  EXPECT_EQ(tuner.steps(), Autotuner::steps_a_turn * (4 + 3 * (Autotuner::rounds - 1)));
}

TEST(Autotuner, KeepsTheDefaultForLessThanOnePercent) {
  EXPECT_EQ(tune(four, [](std::size_t bytes, int) { return bytes == four[1] ? 9.95 : 10.0; }).current(),
            four[0]);
  EXPECT_EQ(tune(four, [](std::size_t bytes, int) { return bytes == four[1] ? 9.85 : 10.0; }).current(),
            four[1]);
}

TEST(Autotuner, OneChoiceTakesNoSteps) {
  const Autotuner tuner({25 * mib});
  EXPECT_TRUE(tuner.finished());
  EXPECT_EQ(tuner.current(), 25 * mib);
}

// A step in new memory, a step with an evaluation, and noise of 10 % must not change the result.
TEST(Autotuner, WithstandsNoise) {
  std::mt19937 random(seed(1));
  int right = 0;
  for (int trial = 0; trial < 100; ++trial) {
    std::normal_distribution<double> noise(1, 0.03);
    const auto tuner = tune(four, [&](std::size_t bytes, int step) {
      const double outlier = step % Autotuner::steps_a_turn == 0 ? 5 : step % 17 == 0 ? 3 : 1;
      return (bytes == four[2] ? 8.5 : 10.0) * noise(random) * outlier;
    });
    right += tuner.current() == four[2] ? 1 : 0;
  }
  EXPECT_GE(right, 98);
}

TEST(BucketSizesToTry, GiveOtherNumbersOfBuckets) {
  // 64 MiB in tensors of 16 MiB: 1, 3 and 4 buckets, or 4 again.
  const auto large = bucket_sizes_to_try(tensors(4, 4 << 20), 25 * mib);
  EXPECT_EQ(large.front(), 25 * mib);
  std::set<std::size_t> numbers;
  for (const auto bytes : large) {
    const auto plan = plan_buckets(tensors(4, 4 << 20), {bytes, mib});
    EXPECT_TRUE(numbers.insert(plan.buckets.size()).second) << bytes;
  }
  EXPECT_THAT(numbers, testing::SizeIs(3));
  // A small model has only one plan.
  EXPECT_THAT(bucket_sizes_to_try(tensors(4, 1000), 25 * mib), testing::ElementsAre(25 * mib));
}

}  // namespace
}  // namespace farandole
