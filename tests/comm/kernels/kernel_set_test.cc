#include "farandole/comm/kernels/kernel_set.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "lane.h"

#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

template <class T>
void expect_roundings(ConvertKernel to, ConvertKernel from) {
  std::mt19937 random(seed(1));
  std::vector<float> in(5000);
  for (auto& value : in) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  const float special[] = {0.0f, -0.0f, 1e-40f, 6e-8f, 65519.9f, 65520.0f, -1e30f, 3.4e38f, INFINITY, NAN};
  std::memcpy(in.data(), special, sizeof special);
  for (std::size_t i = 100; i < 2000; ++i)
    in[i] = std::ldexp(in[i] / std::abs(in[i]), -static_cast<int>(i % 30));
  for (const std::size_t count : {0, 1, 3, 31, 32, 33, 64, 4999, 5000}) {
    std::vector<T> out(count + 1, T{0xabcd});
    to(reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()), count, 0.5f);
    EXPECT_EQ(out[count].bits, 0xabcd);
    std::vector<float> back(count + 1, 42);
    from(reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<std::byte*>(back.data()), count, 2.0f);
    EXPECT_EQ(back[count], 42);
    for (std::size_t i = 0; i < count; ++i) {
      T expected{};
      from_float(in[i] * 0.5f, expected);
      if (std::isnan(in[i])) {
        ASSERT_TRUE(std::isnan(to_float(out[i])) && std::isnan(back[i]));
        continue;
      }
      ASSERT_EQ(out[i].bits, expected.bits) << in[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(to_float(out[i]) * 2));
    }
  }
}

TEST(Convert, RoundsAsTheScalarConversionsInEveryInstructionSet) {
  for (const auto* set : kernel_sets()) {
    SCOPED_TRACE(set->instructions);
    expect_roundings<Float16>(set->to_float16, set->from_float16);
    expect_roundings<BFloat16>(set->to_bfloat16, set->from_bfloat16);
  }
}

TEST(Convert, AddsTwoValuesThatAreRoundedToBfloat16) {
  std::mt19937 random(seed(2));
  for (const auto* set : kernel_sets()) {
    SCOPED_TRACE(set->instructions);
    for (const std::size_t count : {0, 1, 7, 16, 31, 32, 33, 1000}) {
      std::vector<float> own(count + 1, 42);
      std::vector<BFloat16> other(count);
      for (std::size_t i = 0; i < count; ++i)
        own[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      for (auto& value : other) value.bits = static_cast<std::uint16_t>(random());
      auto sums = own;
      set->add_bfloat16(reinterpret_cast<const std::byte*>(other.data()),
                        reinterpret_cast<std::byte*>(sums.data()), count);
      EXPECT_EQ(sums[count], 42);
      for (std::size_t i = 0; i < count; ++i) {
        BFloat16 rounded{};
        from_float(own[i], rounded);
        const float expected = to_float(rounded) + to_float(other[i]);
        if (std::isnan(expected))
          ASSERT_TRUE(std::isnan(sums[i]));
        else
          ASSERT_EQ(std::bit_cast<std::uint32_t>(sums[i]), std::bit_cast<std::uint32_t>(expected)) << own[i];
      }
    }
  }
}

TEST(Convert, EverySixteenBitPatternSurvives) {
  std::vector<std::uint16_t> all(0x10000), back(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  for (const auto dtype : {DType::float16, DType::bfloat16}) {
    widen(reinterpret_cast<const std::byte*>(all.data()), wide.data(), all.size(), dtype);
    narrow(wide.data(), reinterpret_cast<std::byte*>(back.data()), all.size(), dtype);
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_TRUE(std::isnan(wide[i]) || back[i] == all[i]) << all[i];
  }
}

}  // namespace
}  // namespace farandole
