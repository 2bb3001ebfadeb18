#include "farandole/comm/kernels/float16.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace farandole {
namespace {

TEST(Float16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    Float16 back{};
    from_float(to_float(half), back);
    if (std::isnan(to_float(half)))
      EXPECT_TRUE(std::isnan(to_float(back)));
    else
      EXPECT_EQ(back.bits, half.bits);
  }
}

// The nearest half differs by at most half a step. Steps are 2^-10 of the power of two,
// and 2^-24 for subnormals.
TEST(Float16, RoundsToTheNearest) {
  for (float value = 1e-9f; value < 65519.0f; value *= 1.0009765f) {
    Float16 half{};
    from_float(value, half);
    const float step = std::max(std::ldexp(1.0f, std::ilogb(value) - 10), std::ldexp(1.0f, -24));
    EXPECT_LE(std::abs(to_float(half) - value), step / 2) << value;
  }
}

TEST(Float16, TiesGoToTheEvenNeighbour) {
  Float16 half{};
  from_float(1.0f + 0x1p-11f, half);
  EXPECT_EQ(half.bits, 0x3c00);
  from_float(1.0f + 3 * 0x1p-11f, half);
  EXPECT_EQ(half.bits, 0x3c02);
}

TEST(Float16, TheLargeBecomeInfinite) {
  Float16 half{};
  from_float(65519.9f, half);
  EXPECT_EQ(half.bits, 0x7bff);
  from_float(65520.0f, half);
  EXPECT_EQ(half.bits, 0x7c00);
  from_float(-1e30f, half);
  EXPECT_EQ(half.bits, 0xfc00);
}

TEST(BFloat16, RoundsToTheNearestEvenAndKeepsNaN) {
  BFloat16 half{};
  from_float(1.0f + 0x1p-8f, half);
  EXPECT_EQ(half.bits, 0x3f80);
  from_float(1.0f + 3 * 0x1p-8f, half);
  EXPECT_EQ(half.bits, 0x3f82);
  from_float(std::numeric_limits<float>::quiet_NaN(), half);
  EXPECT_TRUE(std::isnan(to_float(half)));
  from_float(std::numeric_limits<float>::infinity(), half);
  EXPECT_TRUE(std::isinf(to_float(half)));
}

}  // namespace
}  // namespace farandole
