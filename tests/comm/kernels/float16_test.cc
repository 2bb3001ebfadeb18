#include "farandole/comm/kernels/float16.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <utility>

namespace farandole {
namespace {

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

// Ties go to the even neighbour. What is too large becomes infinite.
TEST(Float16, HasTheBitsOfTheStandard) {
  for (const auto& [value, bits] : {std::pair{1.0f + 0x1p-11f, 0x3c00},
                                    {1.0f + 3 * 0x1p-11f, 0x3c02},
                                    {65519.9f, 0x7bff},
                                    {65520.0f, 0x7c00},
                                    {-1e30f, 0xfc00}}) {
    Float16 half{};
    from_float(value, half);
    EXPECT_EQ(half.bits, bits) << value;
  }
}

TEST(BFloat16, RoundsToTheNearestEvenAndKeepsNaN) {
  for (const auto& [value, bits] : {std::pair{1.0f + 0x1p-8f, 0x3f80},
                                    {1.0f + 3 * 0x1p-8f, 0x3f82},
                                    {std::numeric_limits<float>::infinity(), 0x7f80}}) {
    BFloat16 half{};
    from_float(value, half);
    EXPECT_EQ(half.bits, bits) << value;
  }
  BFloat16 half{};
  from_float(std::numeric_limits<float>::quiet_NaN(), half);
  EXPECT_TRUE(std::isnan(to_float(half)));
}

}  // namespace
}  // namespace farandole
