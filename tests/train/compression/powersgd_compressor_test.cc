#include "farandole/train/compression/powersgd_compressor.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "fusion/error_feedback.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

template <class T>
std::byte* bytes_at(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

MakeCompressor of_rank(int rank) {
  return [=](const auto& tensors) { return std::make_unique<PowerSgdCompressor>(tensors, rank); };
}

TEST(PowerSgdCompressor, AppliedAndHeldBackAreAllGradients) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const auto make = of_rank(1 + static_cast<int>(seed % 3));
    expect_nothing_lost<float>(seed, DType::float32, 2e-5, make);
    expect_nothing_lost<double>(seed, DType::float64, 1e-12, make);
  }
}

// If the sum of the gradients has at most the rank of the factors, there is no residual.
TEST(PowerSgdCompressor, LowRankGradientsAreExact) {
  const auto plan =
      plan_buckets({{"w", {30, 5, 4}, DType::float64}, {"b", {30}, DType::float64}}, in_one_bucket);
  const auto& bucket = plan.buckets[0];
  const auto& w = bucket.slots[1];  // the plan goes backwards
  ASSERT_EQ(plan.tensors[w.tensor].name, "w");
  const auto element = [](int rank, std::size_t i) {
    return (rank + 1.0) * std::sin(i / 20 + 1.0) * std::cos(i % 20 + rank);
  };
  ThreadWorld::run(3, [&](Communicator& communicator) {
    PowerSgdCompressor compressor(plan.tensors, 3);
    std::vector<double> values(bucket.count(), 1.0);
    for (std::size_t i = 0; i < w.count; ++i) values[w.offset + i] = element(communicator.rank, i);
    compressor.allreduce(communicator, "bucket", plan, 0, bytes_at(values), ReduceOp::sum);
    for (std::size_t i = 0; i < w.count; ++i)
      ASSERT_NEAR(values[w.offset + i], element(0, i) + element(1, i) + element(2, i), 1e-12);
    EXPECT_EQ(values[bucket.slots[0].offset], 3);  // vectors are not compressed
    EXPECT_EQ(compressor.sent_bytes(), (30 * 3 + 30 + 3 + 20 * 3) * sizeof(double));
  });
}

TEST(PowerSgdCompressor, FeedbackConverges) {
  expect_convergence({20, 15}, 2, 150, 0.1, of_rank(2));
}

TEST(PowerSgdCompressor, ContinuingFromItsStateIsNeverHavingStopped) {
  expect_continuing_is_never_having_stopped(of_rank(2));
}

// Steps without gradients and NaN must not have a permanent effect.
TEST(PowerSgdCompressor, RecoversFromZerosAndNaN) {
  const auto plan = plan_buckets({{"w", {30, 20}, DType::float32}}, in_one_bucket);
  const auto& bucket = plan.buckets[0];
  ThreadWorld::run(2, [&](Communicator& communicator) {
    PowerSgdCompressor compressor(plan.tensors, 1);
    const auto reduce_all = [&](float value, float flag) {
      std::vector<float> values(bucket.count(), value);
      values[bucket.payload] = flag;
      compressor.allreduce(communicator, "bucket", plan, 0, bytes_at(values), ReduceOp::average);
      return values;
    };
    EXPECT_NEAR(reduce_all(1, 1)[5], 1, 1e-5);
    const auto absent = reduce_all(0, 0);
    EXPECT_TRUE(std::all_of(absent.begin(), absent.end(), [](float value) { return value == 0; }));
    reduce_all(0, 1);
    EXPECT_NEAR(reduce_all(2, 1)[5], 2, 1e-4);
    EXPECT_TRUE(
        std::isnan(reduce_all(communicator.rank == 1 ? std::numeric_limits<float>::quiet_NaN() : 1, 1)[5]));
    EXPECT_NEAR(reduce_all(3, 1)[5], 3, 1e-4);
  });
}

TEST(PowerSgdCompressor, RefusesRankZeroAndForeignState) {
  EXPECT_THROW(PowerSgdCompressor({}, 0), UserError);
  PowerSgdCompressor compressor({{"w", {30, 20}, DType::float32}}, 2);
  const std::vector<CompressorState> other_rank = {
      {"powersgd_q/w", DType::float32, {20, 3}, std::vector<std::byte>(240)}};
  EXPECT_THROW(compressor.restore(other_rank), CorruptInput);
}

}  // namespace
}  // namespace farandole
