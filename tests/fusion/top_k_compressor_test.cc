#include "farandole/fusion/top_k_compressor.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "fusion/compressor_fixtures.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr BucketOptions one_bucket{std::size_t{1} << 30, std::size_t{1} << 30};

template <class T>
std::vector<double> residual_sum(const std::vector<std::vector<CompressorState>>& states,
                                 const BucketPlan& plan) {
  const auto& bucket = plan.buckets[0];
  std::vector<double> sum(bucket.payload);
  for (const auto& parts : states)
    for (const auto& slot : bucket.slots) {
      const auto* part = find_state(parts, "residual/" + plan.tensors[slot.tensor].name, bucket.dtype,
                                    plan.tensors[slot.tensor].shape);
      if (part == nullptr) continue;
      for (std::size_t i = 0; i < slot.count; ++i) {
        T value;
        std::memcpy(&value, part->bytes.data() + i * sizeof value, sizeof value);
        sum[slot.offset + i] += value;
      }
    }
  return sum;
}

// After any number of steps, the applied values plus the residuals of the ranks equal the
// sum of all gradients.
template <class T>
void expect_nothing_lost(unsigned seed, DType dtype, double tolerance) {
  const int ranks = 1 + static_cast<int>(seed % 5);
  const int steps = 1 + static_cast<int>(seed % 7);
  const double fraction = std::vector{0.01, 0.1, 0.5, 1.0}[seed % 4];
  const auto plan = plan_buckets(random_tensors(seed, dtype), one_bucket);
  const auto& bucket = plan.buckets[0];
  ByRank<std::vector<double>> applied(ranks);
  ByRank<std::vector<CompressorState>> states(ranks);
  ThreadWorld::run(ranks, [&](Communicator& communicator) {
    TopKCompressor compressor(plan.tensors, fraction);
    std::vector<double> sum(bucket.payload);
    for (int step = 0; step < steps; ++step) {
      FilledBucket<T> data(bucket, seed + static_cast<unsigned>(step), communicator.rank);
      compressor.allreduce(communicator, "bucket", plan, 0, data.memory(), ReduceOp::average);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += data.values[i];
      for (std::size_t s = 0; s < bucket.slots.size(); ++s) EXPECT_GT(data.values[bucket.payload + s], 0);
    }
    applied.set(communicator.rank, sum);
    states.set(communicator.rank, compressor.state());
  });
  std::vector<double> exact(bucket.payload);
  for (int r = 0; r < ranks; ++r)
    for (int step = 0; step < steps; ++step) {
      const FilledBucket<T> data(bucket, seed + static_cast<unsigned>(step), r);
      for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += data.values[i];
    }
  const auto held_back = residual_sum<T>(states.values, plan);
  for (std::size_t i = 0; i < exact.size(); ++i)
    ASSERT_NEAR(applied.values[0][i], (exact[i] - held_back[i]) / ranks, tolerance) << "seed " << seed;
  for (const auto& other : applied.values) ASSERT_EQ(other, applied.values[0]);  // equal on all ranks
}

TEST(TopKCompressor, AppliedAndHeldBackAreAllGradients) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    expect_nothing_lost<float>(seed, DType::float32, 1e-5);
    expect_nothing_lost<double>(seed, DType::float64, 1e-13);
  }
}

// With a constant gradient, the mean of the applied values converges to it, because the residual is bounded.
TEST(TopKCompressor, ErrorFeedbackConverges) {
  const auto plan = plan_buckets({{"w", {20, 10}, DType::float32}}, one_bucket);
  const auto& bucket = plan.buckets[0];
  ByRank<double> worst(3);
  constexpr int steps = 400;
  ThreadWorld::run(3, [&](Communicator& communicator) {
    std::vector<double> exact(bucket.payload), sum(bucket.payload);
    for (int r = 0; r < 3; ++r) {
      const FilledBucket<float> data(bucket, 7, r);
      for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += data.values[i] / 3;
    }
    TopKCompressor compressor(plan.tensors, 0.1);
    for (int step = 0; step < steps; ++step) {
      FilledBucket<float> data(bucket, 7, communicator.rank);
      compressor.allreduce(communicator, "bucket", plan, 0, data.memory(), ReduceOp::average);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += data.values[i];
    }
    double most = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) most = std::max(most, std::abs(sum[i] / steps - exact[i]));
    worst.set(communicator.rank, most);
  });
  EXPECT_LT(worst.values[0], 0.05);  // gradients are about 1, and a tenth of them is sent per step
}

TEST(TopKCompressor, ContinuingFromItsStateIsNeverHavingStopped) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto plan = plan_buckets(random_tensors(seed, DType::float32), one_bucket);
    const auto& bucket = plan.buckets[0];
    ThreadWorld::run(2, [&](Communicator& communicator) {
      const auto step = [&](TopKCompressor& compressor, unsigned number) {
        FilledBucket<float> data(bucket, seed + number, communicator.rank);
        compressor.allreduce(communicator, "bucket", plan, 0, data.memory(), ReduceOp::sum);
        return data.values;
      };
      TopKCompressor never_stopped(plan.tensors, 0.05);
      for (unsigned i = 0; i < 3; ++i) step(never_stopped, i);
      TopKCompressor resumed(plan.tensors, 0.05);
      resumed.restore(never_stopped.state());
      for (unsigned i = 3; i < 6; ++i) EXPECT_EQ(step(never_stopped, i), step(resumed, i));
    });
  }
}

// A gradient that no rank has is not applied, so its residual must not be sent.
TEST(TopKCompressor, KeepsTheResidualOfAnAbsentGradient) {
  const auto plan = plan_buckets({{"a", {40}, DType::float32}, {"b", {40}, DType::float32}}, one_bucket);
  const auto& bucket = plan.buckets[0];
  ThreadWorld::run(2, [&](Communicator& communicator) {
    TopKCompressor compressor(plan.tensors, 0.1);
    FilledBucket<float> first(bucket, 1, communicator.rank);
    compressor.allreduce(communicator, "bucket", plan, 0, first.memory(), ReduceOp::sum);
    const auto name = "residual/" + plan.tensors[bucket.slots[0].tensor].name;
    const auto before = find_state(compressor.state(), name, DType::float32, {40})->bytes;
    FilledBucket<float> second(bucket, 2, communicator.rank, 1, 0);
    compressor.allreduce(communicator, "bucket", plan, 0, second.memory(), ReduceOp::sum);
    EXPECT_EQ(find_state(compressor.state(), name, DType::float32, {40})->bytes, before);
    EXPECT_EQ(second.values[bucket.payload], 0);
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(second.values[bucket.slots[0].offset + i], 0);
  });
}

TEST(TopKCompressor, ANaNIsSeenByAllAndNotRemembered) {
  const auto plan = plan_buckets({{"a", {400}, DType::float32}}, one_bucket);
  ThreadWorld::run(2, [&](Communicator& communicator) {
    TopKCompressor compressor(plan.tensors, 0.1);
    std::vector<float> values(plan.buckets[0].count(), 1.0f);
    if (communicator.rank == 1) std::fill_n(values.begin(), 400, std::numeric_limits<float>::quiet_NaN());
    compressor.allreduce(communicator, "bucket", plan, 0, reinterpret_cast<std::byte*>(values.data()),
                         ReduceOp::average);
    EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }));
    for (int step = 0; step < 3; ++step) {
      std::fill(values.begin(), values.end(), 1.0f);
      compressor.allreduce(communicator, "bucket", plan, 0, reinterpret_cast<std::byte*>(values.data()),
                           ReduceOp::average);
      EXPECT_TRUE(std::none_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }));
    }
  });
}

TEST(TopKCompressor, SaysWhatIsWrong) {
  EXPECT_THROW(TopKCompressor({}, 0), UserError);
  EXPECT_THROW(TopKCompressor({}, 1.5), UserError);
  EXPECT_THROW(TopKCompressor({}, std::nan("")), UserError);
  TopKCompressor compressor({{"a", {3}, DType::float32}}, 0.5);
  const std::vector<CompressorState> other = {
      {"residual/a", DType::float32, {4}, std::vector<std::byte>(16)}};
  EXPECT_THROW(compressor.restore(other), CorruptInput);
  const std::vector<CompressorState> unknown = {
      {"residual/z", DType::float32, {4}, std::vector<std::byte>(16)}};
  EXPECT_NO_THROW(compressor.restore(unknown));
}

}  // namespace
}  // namespace farandole
