// What the threads of the reduction kernel do, against the reductions of the CPU.
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "comm/typed_values.h"
#include "lane.h"

#include "farandole/comm/gpu/kernel_jobs.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

bool is_float(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 ||
         dtype == DType::float64;
}

double random_value(DType dtype, std::mt19937& random) {
  constexpr double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 65504, 6e-8, 1e-40, -3e38};
  if (!is_float(dtype)) return static_cast<std::int32_t>(random() % 256) - (dtype == DType::uint8 ? 0 : 128);
  if (random() % 10 == 0) return special[random() % std::size(special)];
  return std::normal_distribution<double>(0, std::exp2(static_cast<int>(random() % 20) - 10))(random);
}

// The same bits, or a NaN in both.
bool same_bits(const std::byte* a, const std::byte* b, DType dtype, std::size_t i) {
  const auto bytes = size_of(dtype);
  return std::memcmp(a + i * bytes, b + i * bytes, bytes) == 0 ||
         (std::isnan(load(a, dtype, i)) && std::isnan(load(b, dtype, i)));
}

// Vectors of any length and alignment, in place or not. Nothing beside the outputs is written.
void reduce_random_vectors(std::mt19937& random) {
  constexpr ReduceOp all_ops[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max,
                                  ReduceOp::product};
  auto dtype = all_dtypes[random() % std::size(all_dtypes)];
  if (dtype == DType::boolean) dtype = DType::uint8;
  auto op = all_ops[random() % std::size(all_ops)];
  if (!can_reduce(op, dtype)) op = ReduceOp::sum;
  const std::size_t ranks = 1 + random() % 6, count = random() % 300;
  const bool in_place = random() % 2 == 0;
  const std::size_t outputs = in_place ? ranks : 1 + random() % 3;
  constexpr std::size_t gap = 48;
  const auto bytes = count * size_of(dtype) + gap;
  std::vector<std::vector<std::byte>> inputs(ranks), results(outputs), expected;
  PeerReduction job{};
  std::vector<const std::byte*> from;
  const bool aligned = random() % 2 == 0;
  const auto at = [&](std::vector<std::byte>& memory) {
    const auto to_vector = (16 - reinterpret_cast<std::uintptr_t>(memory.data()) % 16) % 16;
    return memory.data() + to_vector + (aligned ? 0 : size_of(dtype) * (random() % (16 / size_of(dtype))));
  };
  for (std::size_t k = 0; k < ranks; ++k) {
    inputs[k].resize(bytes);
    auto* const data = at(inputs[k]);
    for (std::size_t i = 0; i < count; ++i) store(data, dtype, i, random_value(dtype, random));
    job.inputs[k] = data;
    from.push_back(data);
  }
  std::vector<std::byte> wanted(bytes);
  auto* const right = wanted.data();
  reduce(from, std::span(&right, 1), count, dtype, op);
  for (std::size_t o = 0; o < outputs; ++o) {
    if (!in_place) results[o].assign(bytes, std::byte{0x5a});
    job.outputs[o] = in_place ? const_cast<std::byte*>(job.inputs[o]) : at(results[o]);
  }
  job.input_count = static_cast<std::uint32_t>(ranks);
  job.output_count = static_cast<std::uint32_t>(outputs);
  job.count = count;
  job.dtype = dtype;
  job.op = op;
  job.factor = 1;
  const std::uint64_t threads = 1 + random() % 40;
  for (std::uint64_t thread = 0; thread < threads; ++thread) reduce_peers(job, thread, threads);
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_TRUE(same_bits(job.outputs[o], right, dtype, i))
          << name_of(dtype) << " " << name_of(op) << " of " << ranks << " ranks, element " << i << " of "
          << count << ": " << load(job.outputs[o], dtype, i) << " instead of " << load(right, dtype, i);
    if (in_place) continue;
    const auto* const begin = results[o].data();
    for (const auto* byte = begin; byte < begin + bytes; ++byte) {
      const bool is_output = byte >= job.outputs[o] && byte < job.outputs[o] + count * size_of(dtype);
      ASSERT_TRUE(is_output || *byte == std::byte{0x5a});
    }
  }
}

TEST(PeerReduction, HasTheBitsOfTheCpu) {
  const auto first = seed(8);
  std::mt19937 random(first);
  for (int i = 0; i < rounds(1'500, 20'000) && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << first << " round " << i);
    reduce_random_vectors(random);
  }
}

TEST(PeerReduction, MultipliesBeforeItAdds) {
  const float a[] = {1, 2, 3}, b[] = {10, 20, 30};
  float sum[3];
  PeerReduction job{};
  job.inputs[0] = reinterpret_cast<const std::byte*>(a);
  job.inputs[1] = reinterpret_cast<const std::byte*>(b);
  job.outputs[0] = reinterpret_cast<std::byte*>(sum);
  job.input_count = 2;
  job.output_count = 1;
  job.count = 3;
  job.dtype = DType::float32;
  job.op = ReduceOp::average;
  job.factor = 0.25;
  reduce_peers(job, 0, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sum[i], (i + 1) * 11 * 0.125f);
}

}  // namespace
}  // namespace farandole
