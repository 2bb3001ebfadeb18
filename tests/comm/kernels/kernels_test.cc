#include "farandole/comm/kernels/kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "comm/typed_values.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/kernels/kernel_set.h"

namespace farandole {
namespace {

constexpr std::array all_ops = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max,
                                ReduceOp::product};

double reference(ReduceOp op, DType dtype, const std::vector<double>& values) {
  double result = values[0];
  for (std::size_t k = 1; k < values.size(); ++k) {
    if (op == ReduceOp::sum || op == ReduceOp::average) result = wrapped(dtype, result + values[k]);
    if (op == ReduceOp::product) result = wrapped(dtype, result * values[k]);
    if (op == ReduceOp::min) result = std::min(result, values[k]);
    if (op == ReduceOp::max) result = std::max(result, values[k]);
  }
  if (op == ReduceOp::average) result /= static_cast<double>(values.size());
  return result;
}

// Half a step of the type at the result, plus the error of the float32 arithmetic.
double tolerance(DType dtype, double result) {
  switch (dtype) {
    case DType::float16:
      return std::max(std::abs(result) * 0x1p-11, 0x1p-25) * 1.01;
    case DType::bfloat16:
      return std::abs(result) * 0x1p-8 * 1.01;
    case DType::float32:
      return 1e-5;
    case DType::float64:
      return 1e-13;
    default:
      return 0;
  }
}

// Buffers of several ranks, each at its own offset from a 64-byte boundary.
class Ranks {
 public:
  Ranks(std::size_t ranks, std::size_t count, DType dtype, std::mt19937& random)
      : count_(count), dtype_(dtype), memory_(ranks), offset_(ranks) {
    std::uniform_int_distribution<std::size_t> offset(0, 70);
    for (std::size_t r = 0; r < ranks; ++r) {
      offset_[r] = offset(random) * size_of(dtype);
      memory_[r].resize(offset_[r] + count * size_of(dtype) + guard, fill);
    }
  }
  std::byte* operator[](std::size_t rank) { return memory_[rank].data() + offset_[rank]; }
  std::vector<std::byte*> pointers() {
    std::vector<std::byte*> all;
    for (std::size_t r = 0; r < memory_.size(); ++r) all.push_back((*this)[r]);
    return all;
  }
  bool untouched_around() const {
    const auto is_fill = [](std::byte byte) { return byte == fill; };
    for (std::size_t r = 0; r < memory_.size(); ++r) {
      const auto first = memory_[r].begin() + static_cast<std::ptrdiff_t>(offset_[r]);
      const auto last = first + static_cast<std::ptrdiff_t>(count_ * size_of(dtype_));
      if (!std::all_of(memory_[r].begin(), first, is_fill) || !std::all_of(last, memory_[r].end(), is_fill))
        return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard = 100;
  static constexpr std::byte fill{0xa5};
  std::size_t count_;
  DType dtype_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::size_t> offset_;
};

class ReduceKernels : public testing::TestWithParam<std::size_t> {
 protected:
  static void reduce_with(std::vector<std::byte*> inputs, const std::vector<std::byte*>& outputs,
                          std::size_t count, DType dtype, ReduceOp op) {
    const auto kernel =
        kernel_sets()[GetParam()]->reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
    kernel(inputs.data(), inputs.size(), outputs.data(), outputs.size(), count);
  }
};

double random_value(DType dtype, std::mt19937& random) {
  if (dtype == DType::boolean) return static_cast<double>(random() % 2 * 2);  // 2 is stored as true
  if (dtype == DType::uint8 || dtype == DType::int8 || dtype == DType::int16)
    return wrapped(dtype, static_cast<double>(random() % 65536));
  if (dtype == DType::int32 || dtype == DType::int64)
    return static_cast<double>(static_cast<int>(random() % 15) - 7);
  return std::uniform_real_distribution<double>(-2, 2)(random);
}

TEST_P(ReduceKernels, MatchTheReference) {
  std::mt19937 random(seed(1));
  for (int round = 0; round < 40; ++round) {
    for (const auto dtype : all_dtypes) {
      for (const auto op : all_ops) {
        if (!can_reduce(op, dtype)) continue;
        const std::size_t ranks = 1 + random() % 9;
        const std::size_t count = random() % (round % 4 == 0 ? 3000 : 70);
        Ranks data(ranks, count, dtype, random);
        std::vector<std::vector<double>> values(count, std::vector<double>(ranks));
        for (std::size_t r = 0; r < ranks; ++r)
          for (std::size_t i = 0; i < count; ++i) {
            store(data[r], dtype, i, random_value(dtype, random));
            values[i][r] = load(data[r], dtype, i);
          }
        // Writes in place to all ranks, to one of them, or to other memory.
        Ranks elsewhere(2, count, dtype, random);
        auto outputs = random() % 2 == 0 ? data.pointers() : std::vector{data[random() % ranks]};
        if (random() % 4 == 0) outputs = elsewhere.pointers();
        reduce_with(data.pointers(), outputs, count, dtype, op);
        for (std::size_t i = 0; i < count; ++i) {
          const double expected = reference(op, dtype, values[i]);
          for (const auto* output : outputs)
            ASSERT_NEAR(load(output, dtype, i), expected, tolerance(dtype, expected))
                << name_of(op) << " of " << name_of(dtype) << ", " << ranks << " inputs, " << count;
        }
        ASSERT_TRUE(data.untouched_around() && elsewhere.untouched_around());
      }
    }
  }
}

// Ranks reduce slices of the same data. The result must not depend on where the slices begin.
TEST_P(ReduceKernels, PiecesGiveTheBitsOfTheWhole) {
  std::mt19937 random(seed(2));
  for (const auto dtype : all_dtypes) {
    for (const auto op : all_ops) {
      if (!can_reduce(op, dtype)) continue;
      for (std::size_t ranks = 1; ranks <= 6; ++ranks) {
        const std::size_t count = 500 + random() % 500;
        const std::size_t bytes = count * size_of(dtype);
        Ranks whole(ranks, count, dtype, random);
        Ranks pieces(ranks, count, dtype, random);
        for (std::size_t r = 0; r < ranks; ++r) {
          for (std::size_t i = 0; i < count; ++i) store(whole[r], dtype, i, random_value(dtype, random));
          std::memcpy(pieces[r], whole[r], bytes);
        }
        reduce_with(whole.pointers(), whole.pointers(), count, dtype, op);
        for (std::size_t first = 0; first < count;) {
          const std::size_t length = std::min<std::size_t>(count - first, 1 + random() % 90);
          auto pointers = pieces.pointers();
          for (auto& pointer : pointers) pointer += first * size_of(dtype);
          reduce_with(pointers, pointers, length, dtype, op);
          first += length;
        }
        for (std::size_t r = 0; r < ranks; ++r)
          ASSERT_EQ(std::memcmp(whole[r], pieces[r], bytes), 0) << name_of(op) << " of " << name_of(dtype);
      }
    }
  }
}

// Random 16-bit patterns with each other, including subnormals, infinities and NaNs.
template <class T>
void expect_float32_sums(DType dtype, const auto& reduce_two) {
  std::mt19937 random(seed(3));
  constexpr std::size_t patterns = 0x10000;
  std::vector<std::uint16_t> a(patterns), b(patterns);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < patterns; ++i) a[i] = static_cast<std::uint16_t>(i);
    for (auto& bits : b) bits = static_cast<std::uint16_t>(random());
    if (round == 0) std::fill(b.begin(), b.end(), std::uint16_t{0});
    const auto first = a, second = b;
    reduce_two(a, b, dtype);
    ASSERT_EQ(std::memcmp(a.data(), b.data(), 2 * patterns), 0);
    for (std::size_t i = 0; i < patterns; ++i) {
      T expected{};
      from_float(to_float(T{first[i]}) + to_float(T{second[i]}), expected);
      if (std::isnan(to_float(expected)))
        ASSERT_TRUE(std::isnan(to_float(T{a[i]}))) << first[i] << " + " << second[i];
      else
        ASSERT_EQ(a[i], expected.bits) << first[i] << " + " << second[i];
    }
  }
}

TEST_P(ReduceKernels, SixteenBitSumsAreRoundedFloat32Sums) {
  const auto reduce_two = [](auto& a, auto& b, DType dtype) {
    const std::vector data = {reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data())};
    reduce_with(data, data, a.size(), dtype, ReduceOp::sum);
  };
  expect_float32_sums<Float16>(DType::float16, reduce_two);
  expect_float32_sums<BFloat16>(DType::bfloat16, reduce_two);
}

// 2048 + 1 + 1 would be 2048 if each sum were rounded to float16.
TEST_P(ReduceKernels, SixteenBitSumsOfManyAreRoundedOnce) {
  for (const auto dtype : {DType::float16, DType::bfloat16}) {
    std::mt19937 random(seed(4));
    const double large = dtype == DType::float16 ? 2048 : 256;
    for (std::size_t ranks : {3u, 5u, 7u}) {
      Ranks data(ranks, 100, dtype, random);
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < 100; ++i) store(data[r], dtype, i, r == 0 ? large : 1);
      reduce_with(data.pointers(), data.pointers(), 100, dtype, ReduceOp::sum);
      for (std::size_t i = 0; i < 100; ++i)
        EXPECT_EQ(load(data[1], dtype, i), large + static_cast<double>(ranks - 1));
    }
  }
}

TEST_P(ReduceKernels, NaNWinsAndInfinitiesStay) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::mt19937 random(seed(5));
  for (const auto dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    for (const auto op : all_ops) {
      for (std::size_t who = 0; who < 3; ++who) {
        constexpr std::size_t count = 77;
        Ranks data(3, count, dtype, random);
        for (std::size_t r = 0; r < 3; ++r)
          for (std::size_t i = 0; i < count; ++i)
            store(data[r], dtype, i, r != who ? 1 : i % 3 == 0 ? nan : i % 3 == 1 ? infinity : -infinity);
        reduce_with(data.pointers(), data.pointers(), count, dtype, op);
        for (std::size_t i = 0; i < count; ++i) {
          const double result = load(data[2], dtype, i);
          if (i % 3 == 0)
            ASSERT_TRUE(std::isnan(result)) << name_of(op) << " of " << name_of(dtype);
          else
            ASSERT_EQ(result, reference(op, dtype, {1, 1, i % 3 == 1 ? infinity : -infinity}));
        }
      }
    }
  }
}

TEST_P(ReduceKernels, IntegersWrap) {
  std::vector<std::int32_t> a(40, std::numeric_limits<std::int32_t>::max()), b(40, 1);
  const std::vector data = {reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data())};
  reduce_with(data, data, a.size(), DType::int32, ReduceOp::sum);
  for (const auto value : a) EXPECT_EQ(value, std::numeric_limits<std::int32_t>::min());
}

TEST_P(ReduceKernels, AverageOfFloatsIsTheRoundedQuotient) {
  std::mt19937 random(seed(6));
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    Ranks data(ranks, 300, DType::float32, random);
    std::vector<float> sums(300);
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < 300; ++i) {
        store(data[r], DType::float32, i, random_value(DType::float32, random));
        sums[i] += static_cast<float>(load(data[r], DType::float32, i));
      }
    reduce_with(data.pointers(), {data[0]}, 300, DType::float32, ReduceOp::average);
    for (std::size_t i = 0; i < 300; ++i)
      ASSERT_EQ(load(data[0], DType::float32, i), sums[i] / static_cast<float>(ranks));
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, ReduceKernels, testing::Range(std::size_t{0}, kernel_sets().size()),
                         [](const auto& set) {
                           std::string name = kernel_sets()[set.param]->instructions;
                           std::replace_if(
                               name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

TEST(Reduce, RefusesWhatTheTypeDoesNotHave) {
  std::vector<std::byte> data(8);
  std::byte* const to[] = {data.data()};
  const std::byte* const from[] = {data.data()};
  const auto call = [&](DType dtype, ReduceOp op) { reduce(from, to, 8 / size_of(dtype), dtype, op); };
  EXPECT_THROW(call(DType::boolean, ReduceOp::sum), UserError);
  EXPECT_THROW(call(DType::int32, ReduceOp::average), UserError);
  EXPECT_THROW(call(DType::uint8, ReduceOp::average), UserError);
  EXPECT_NO_THROW(call(DType::boolean, ReduceOp::max));
  for (const auto* set : kernel_sets())
    for (const auto dtype : all_dtypes)
      for (const auto op : all_ops)
        EXPECT_EQ(set->reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)] != nullptr,
                  can_reduce(op, dtype));
}

}  // namespace
}  // namespace farandole
