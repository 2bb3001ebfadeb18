#include "farandole/train/compression/powersgd_compressor.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "fusion/compressor_fixtures.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr BucketOptions in_one_bucket{std::size_t{1} << 30, std::size_t{1} << 30};

template <class T>
std::byte* bytes_at(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// Sum of the residuals of tensor t over the ranks.
template <class T>
std::vector<double> held_back(const std::vector<std::vector<CompressorState>>& states,
                              const TensorSpec& tensor) {
  std::vector<double> sum(tensor.count());
  for (const auto& parts : states) {
    const auto* part = find_state(parts, "residual/" + tensor.name, tensor.dtype, tensor.shape);
    for (std::size_t i = 0; part != nullptr && i < sum.size(); ++i) {
      T value;
      std::memcpy(&value, part->bytes.data() + i * sizeof value, sizeof value);
      sum[i] += value;
    }
  }
  return sum;
}

// After any number of steps, the applied gradients plus the residuals equal the sum of all gradients.
template <class T>
void expect_all_gradients(unsigned seed, DType dtype, double tolerance) {
  const int ranks = 1 + static_cast<int>(seed % 4);
  const unsigned steps = 1 + seed % 5;
  const auto plan = plan_buckets(random_tensors(seed, dtype), in_one_bucket);
  const auto& bucket = plan.buckets[0];
  ByRank<std::vector<double>> applied(ranks);
  ByRank<std::vector<CompressorState>> states(ranks);
  ThreadWorld::run(ranks, [&](Communicator& communicator) {
    PowerSgdCompressor compressor(plan.tensors, 1 + static_cast<int>(seed % 3));
    std::vector<double> sum(bucket.payload);
    for (unsigned step = 0; step < steps; ++step) {
      FilledBucket<T> data(bucket, seed + step, communicator.rank);
      compressor.allreduce(communicator, "bucket", plan, 0, data.memory(), ReduceOp::average);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += data.values[i];
      for (std::size_t s = 0; s < bucket.slots.size(); ++s) EXPECT_EQ(data.values[bucket.payload + s], 1);
    }
    applied.set(communicator.rank, sum);
    states.set(communicator.rank, compressor.state());
  });
  std::vector<double> exact(bucket.payload);
  for (int r = 0; r < ranks; ++r)
    for (unsigned step = 0; step < steps; ++step) {
      const FilledBucket<T> data(bucket, seed + step, r);
      for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += data.values[i];
    }
  for (const auto& slot : bucket.slots) {
    const auto left = held_back<T>(states.values, plan.tensors[slot.tensor]);
    for (std::size_t i = 0; i < slot.count; ++i)
      ASSERT_NEAR(applied.values[0][slot.offset + i], (exact[slot.offset + i] - left[i]) / ranks, tolerance)
          << plan.tensors[slot.tensor].describe() << ", seed " << seed;
  }
  for (const auto& other : applied.values) ASSERT_EQ(other, applied.values[0]);  // on all ranks the same
}

TEST(PowerSgdCompressor, AppliedAndHeldBackAreAllGradients) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    expect_all_gradients<float>(seed, DType::float32, 2e-5);
    expect_all_gradients<double>(seed, DType::float64, 1e-12);
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

// With a constant gradient, the mean of the applied gradients converges to it, because
// the residual is bounded.
TEST(PowerSgdCompressor, FeedbackConverges) {
  const auto plan = plan_buckets({{"w", {20, 15}, DType::float32}}, in_one_bucket);
  const auto& bucket = plan.buckets[0];
  ThreadWorld::run(2, [&](Communicator& communicator) {
    std::vector<double> exact(bucket.payload), sum(bucket.payload);
    for (int r = 0; r < 2; ++r) {
      const FilledBucket<float> data(bucket, 7, r);
      for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += data.values[i] / 2;
    }
    PowerSgdCompressor compressor(plan.tensors, 2);
    constexpr int steps = 150;
    for (int step = 0; step < steps; ++step) {
      FilledBucket<float> data(bucket, 7, communicator.rank);
      compressor.allreduce(communicator, "bucket", plan, 0, data.memory(), ReduceOp::average);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += data.values[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i] / steps, exact[i], 0.1);
  });
}

TEST(PowerSgdCompressor, ContinuingFromItsStateIsNeverHavingStopped) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto plan = plan_buckets(random_tensors(seed, DType::float32), in_one_bucket);
    const auto& bucket = plan.buckets[0];
    ThreadWorld::run(2, [&](Communicator& communicator) {
      const auto step = [&](PowerSgdCompressor& compressor, unsigned number) {
        FilledBucket<float> data(bucket, seed + number, communicator.rank);
        compressor.allreduce(communicator, "bucket", plan, 0, data.memory(), ReduceOp::sum);
        return data.values;
      };
      PowerSgdCompressor never_stopped(plan.tensors, 2);
      for (unsigned i = 0; i < 3; ++i) step(never_stopped, i);
      PowerSgdCompressor resumed(plan.tensors, 2);
      resumed.restore(never_stopped.state());
      for (unsigned i = 3; i < 6; ++i) EXPECT_EQ(step(never_stopped, i), step(resumed, i));
    });
  }
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
