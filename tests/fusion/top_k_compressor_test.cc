#include "farandole/fusion/top_k_compressor.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "fusion/error_feedback.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

MakeCompressor with_fraction(double fraction) {
  return [=](const auto& tensors) { return std::make_unique<TopKCompressor>(tensors, fraction); };
}

TEST(TopKCompressor, AppliedAndHeldBackAreAllGradients) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const auto make = with_fraction(std::vector{0.01, 0.1, 0.5, 1.0}[seed % 4]);
    expect_nothing_lost<float>(seed, DType::float32, 1e-5, make);
    expect_nothing_lost<double>(seed, DType::float64, 1e-13, make);
  }
}

TEST(TopKCompressor, ErrorFeedbackConverges) {
  // Gradients are about 1, and a tenth of them is sent per step.
  expect_convergence({20, 10}, 3, 400, 0.05, with_fraction(0.1));
}

TEST(TopKCompressor, ContinuingFromItsStateIsNeverHavingStopped) {
  expect_continuing_is_never_having_stopped(with_fraction(0.05));
}

// A gradient that no rank has is not applied, so its residual must not be sent.
TEST(TopKCompressor, KeepsTheResidualOfAnAbsentGradient) {
  const auto plan = plan_buckets({{"a", {40}, DType::float32}, {"b", {40}, DType::float32}}, in_one_bucket);
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
  const auto plan = plan_buckets({{"a", {400}, DType::float32}}, in_one_bucket);
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
