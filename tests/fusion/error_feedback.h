// What all compressors with error feedback must do. `make` returns a compressor of one rank for the tensors
// of a plan; it must not depend on the rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "fusion/compressor_fixtures.h"

namespace farandole {

inline constexpr BucketOptions in_one_bucket{std::size_t{1} << 30, std::size_t{1} << 30};

using MakeCompressor = std::function<std::unique_ptr<Compressor>(const std::vector<TensorSpec>& tensors)>;

// Sum of the residuals of the ranks, at the places of the plan's one bucket.
template <class T>
std::vector<double> residual_sum(const std::vector<std::vector<CompressorState>>& states,
                                 const BucketPlan& plan) {
  const auto& bucket = plan.buckets[0];
  std::vector<double> sum(bucket.payload);
  for (const auto& parts : states)
    for (const auto& slot : bucket.slots) {
      const auto& tensor = plan.tensors[slot.tensor];
      const auto* part = find_state(parts, "residual/" + tensor.name, bucket.dtype, tensor.shape);
      for (std::size_t i = 0; part != nullptr && i < slot.count; ++i) {
        T value;
        std::memcpy(&value, part->bytes.data() + i * sizeof value, sizeof value);
        sum[slot.offset + i] += value;
      }
    }
  return sum;
}

// Sum of the gradients of `ranks` ranks in steps 0 to `steps` - 1; step i has seed `seed` + i.
template <class T>
std::vector<double> exact_sum(const Bucket& bucket, unsigned seed, int ranks, unsigned steps) {
  std::vector<double> sum(bucket.payload);
  for (int rank = 0; rank < ranks; ++rank)
    for (unsigned step = 0; step < steps; ++step) {
      const FilledBucket<T> data(bucket, seed + step, rank);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += data.values[i];
    }
  return sum;
}

// After any number of steps, the applied values plus the residuals of the ranks equal the sum
// of all gradients.
template <class T>
void expect_nothing_lost(unsigned seed, DType dtype, double tolerance, const MakeCompressor& make) {
  const int ranks = 1 + static_cast<int>(seed % 5);
  const unsigned steps = 1 + seed % 7;
  const auto plan = plan_buckets(random_tensors(seed, dtype), in_one_bucket);
  const auto& bucket = plan.buckets[0];
  ByRank<std::vector<double>> applied(ranks);
  ByRank<std::vector<CompressorState>> states(ranks);
  ThreadWorld::run(ranks, [&](Communicator& communicator) {
    const auto compressor = make(plan.tensors);
    std::vector<double> sum(bucket.payload);
    for (unsigned step = 0; step < steps; ++step) {
      FilledBucket<T> data(bucket, seed + step, communicator.rank);
      compressor->allreduce(communicator, "bucket", plan, 0, data.memory(), ReduceOp::average);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += data.values[i];
      for (std::size_t s = 0; s < bucket.slots.size(); ++s) EXPECT_GT(data.values[bucket.payload + s], 0);
    }
    applied.set(communicator.rank, sum);
    states.set(communicator.rank, compressor->state());
  });
  const auto exact = exact_sum<T>(bucket, seed, ranks, steps);
  const auto held_back = residual_sum<T>(states.values, plan);
  for (std::size_t i = 0; i < exact.size(); ++i)
    ASSERT_NEAR(applied.values[0][i], (exact[i] - held_back[i]) / ranks, tolerance) << "seed " << seed;
  for (const auto& other : applied.values) ASSERT_EQ(other, applied.values[0]);  // equal on all ranks
}

// With a constant gradient, the mean of the applied values converges to it, because the residual is bounded.
inline void expect_convergence(const std::vector<std::int64_t>& shape, int ranks, int steps, double tolerance,
                               const MakeCompressor& make) {
  const auto plan = plan_buckets({{"w", shape, DType::float32}}, in_one_bucket);
  const auto& bucket = plan.buckets[0];
  const auto exact = exact_sum<float>(bucket, 7, ranks, 1);
  ThreadWorld::run(ranks, [&](Communicator& communicator) {
    const auto compressor = make(plan.tensors);
    std::vector<double> sum(bucket.payload);
    for (int step = 0; step < steps; ++step) {
      FilledBucket<float> data(bucket, 7, communicator.rank);
      compressor->allreduce(communicator, "bucket", plan, 0, data.memory(), ReduceOp::average);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += data.values[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i] / steps, exact[i] / ranks, tolerance);
  });
}

inline void expect_continuing_is_never_having_stopped(const MakeCompressor& make) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto plan = plan_buckets(random_tensors(seed, DType::float32), in_one_bucket);
    const auto& bucket = plan.buckets[0];
    ThreadWorld::run(2, [&](Communicator& communicator) {
      const auto step = [&](Compressor& compressor, unsigned number) {
        FilledBucket<float> data(bucket, seed + number, communicator.rank);
        compressor.allreduce(communicator, "bucket", plan, 0, data.memory(), ReduceOp::sum);
        return data.values;
      };
      const auto never_stopped = make(plan.tensors), resumed = make(plan.tensors);
      for (unsigned i = 0; i < 3; ++i) step(*never_stopped, i);
      resumed->restore(never_stopped->state());
      for (unsigned i = 3; i < 6; ++i) EXPECT_EQ(step(*never_stopped, i), step(*resumed, i));
    });
  }
}

}  // namespace farandole
