#include "farandole/fusion/half_compressor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "fusion/thread_world.h"
#include "lane.h"

#include "farandole/base/bucket_plan.h"

namespace farandole {
namespace {

std::vector<TensorSpec> random_tensors(unsigned seed, DType dtype) {
  std::mt19937 random(seed);
  std::vector<TensorSpec> tensors;
  const std::size_t count = 1 + random() % 6;
  for (std::size_t i = 0; i < count; ++i) {
    const auto dimensions = random() % 4;
    std::vector<std::int64_t> shape;
    for (unsigned d = 0; d < dimensions; ++d) shape.push_back(static_cast<std::int64_t>(1 + random() % 20));
    tensors.push_back({"t" + std::to_string(i), shape, dtype});
  }
  return tensors;
}

// The bucket of one rank, with random gradients that are equal for equal seeds.
template <class T>
struct FilledBucket {
  FilledBucket(const Bucket& bucket, unsigned seed, int rank) : values(bucket.count()) {
    std::mt19937 random(seed * 1000u + static_cast<unsigned>(rank));
    std::normal_distribution<double> normal(0, 1);
    for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
      for (std::size_t i = 0; i < bucket.slots[s].count; ++i)
        values[bucket.slots[s].offset + i] = static_cast<T>(normal(random));
      values[bucket.payload + s] = 1;
    }
  }
  std::byte* memory() { return reinterpret_cast<std::byte*>(values.data()); }

  std::vector<T> values;
};

// The relative error of one rounding.
double step_of(DType half) {
  return half == DType::float16 ? 0x1p-11 : 0x1p-8;
}
// The absolute error of one rounding of subnormals.
double smallest_of(DType half) {
  return half == DType::float16 ? 0x1p-25 : 0;
}

template <class T>
void expect_near_the_exact_reduction(unsigned seed, DType dtype, DType half, ReduceOp op) {
  const int ranks = 1 + static_cast<int>(seed % 5);
  const auto plan = plan_buckets(random_tensors(seed, dtype), {std::size_t{1} << 30, std::size_t{1} << 30});
  const auto& bucket = plan.buckets[0];
  std::vector<double> exact(bucket.count()), magnitude(bucket.count());
  for (int r = 0; r < ranks; ++r) {
    const FilledBucket<T> data(bucket, seed, r);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      exact[i] += data.values[i];
      magnitude[i] += std::abs(data.values[i]);
    }
  }
  std::vector<std::vector<T>> results(static_cast<std::size_t>(ranks));
  ThreadWorld::run(ranks, [&](Communicator& communicator) {
    FilledBucket<T> data(bucket, seed, communicator.rank);
    HalfCompressor compressor(half);
    compressor.allreduce(communicator, "bucket", bucket, data.memory(), op);
    EXPECT_EQ(compressor.bytes_for(bucket), bucket.count() * 2);
    results[static_cast<std::size_t>(communicator.rank)] = data.values;
  });
  const double scale = op == ReduceOp::average ? 1.0 / ranks : 1.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double bound = 2.1 * step_of(half) * magnitude[i] + (ranks + 1) * ranks * smallest_of(half);
    ASSERT_NEAR(results[0][i], exact[i] * scale, bound * scale) << i;
  }
  for (const auto& result : results)
    ASSERT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(T)), 0);
}

TEST(HalfCompressor, StaysWithinItsRounding) {
  for (unsigned seed = 0; seed < static_cast<unsigned>(rounds(15, 100)); ++seed)
    for (const auto half : {DType::float16, DType::bfloat16})
      for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
        expect_near_the_exact_reduction<float>(seed, DType::float32, half, op);
        expect_near_the_exact_reduction<double>(seed, DType::float64, half, op);
      }
}

// Each of four ranks has 60000. Neither their sum nor a partial sum fits into float16.
TEST(HalfCompressor, SumsBeyondFloat16sRangeSurvive) {
  const auto plan = plan_buckets({{"t", {100}, DType::float32}}, {});
  const auto& bucket = plan.buckets[0];
  ThreadWorld::run(4, [&](Communicator& communicator) {
    for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
      std::vector<float> values(bucket.count(), 60000.0f);
      HalfCompressor compressor(DType::float16);
      compressor.allreduce(communicator, "bucket", bucket, reinterpret_cast<std::byte*>(values.data()), op);
      EXPECT_NEAR(values[0], op == ReduceOp::sum ? 240000.0f : 60000.0f, 120);
    }
  });
}

TEST(HalfCompressor, KeepsFlagsAndPassesSixteenBitBucketsThrough) {
  const auto plan = plan_buckets({{"a", {3}, DType::float32}, {"b", {5}, DType::float32}}, {});
  const auto small = plan_buckets({{"c", {7}, DType::bfloat16}}, {});
  ThreadWorld::run(3, [&](Communicator& communicator) {
    const auto& bucket = plan.buckets[0];
    for (const auto half : {DType::float16, DType::bfloat16}) {
      HalfCompressor compressor(half);
      // Slot 0 is missing on all ranks, slot 1 is present on one rank.
      std::vector<float> values(bucket.count());
      if (communicator.rank == 2) values[bucket.payload + 1] = 1;
      compressor.allreduce(communicator, "bucket", bucket, reinterpret_cast<std::byte*>(values.data()),
                           ReduceOp::average);
      EXPECT_EQ(values[bucket.payload], 0);
      EXPECT_GT(values[bucket.payload + 1], 0);

      std::vector<std::uint16_t> ones(small.buckets[0].count(), 0x3f80);
      compressor.allreduce(communicator, "bucket", small.buckets[0],
                           reinterpret_cast<std::byte*>(ones.data()), ReduceOp::sum);
      EXPECT_EQ(ones[0], 0x4040);  // 3
    }
  });
}

}  // namespace
}  // namespace farandole
