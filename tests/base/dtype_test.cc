#include "farandole/base/dtype.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <vector>

namespace farandole {
namespace {

// `exponent`: the bits of the exponent, all of which are set in NaNs and infinities only.
template <typename Bits>
void finds_each_number_alone(DType dtype, Bits exponent) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 500; ++i) {
    const auto count = random() % 700 + 1, shift = random() % 64;
    std::vector<std::byte> memory(shift + count * sizeof(Bits));
    const std::span<std::byte> bytes(memory.data() + shift, count * sizeof(Bits));
    const auto put = [&](std::size_t place, Bits bits) {
      std::memcpy(bytes.data() + place * sizeof bits, &bits, sizeof bits);
    };
    const auto lowest = static_cast<Bits>(exponent & (~exponent + 1));
    for (std::size_t k = 0; k < count; ++k) {
      auto bits = static_cast<Bits>(random());
      if ((bits & exponent) == exponent) bits = static_cast<Bits>(bits & ~lowest);
      put(k, bits);
    }
    ASSERT_TRUE(has_only_finite(bytes, dtype)) << count << " numbers";
    const auto place = random() % count;
    put(place, static_cast<Bits>(exponent | (random() % 2 ? random() : 0)));
    ASSERT_FALSE(has_only_finite(bytes, dtype)) << "number " << place << " of " << count;
  }
}

TEST(Finite, EachNumberCounts) {
  finds_each_number_alone<std::uint16_t>(DType::float16, 0x7c00);
  finds_each_number_alone<std::uint16_t>(DType::bfloat16, 0x7f80);
  finds_each_number_alone<std::uint32_t>(DType::float32, 0x7f80'0000);
  finds_each_number_alone<std::uint64_t>(DType::float64, 0x7ff0'0000'0000'0000);
}

TEST(Finite, IntegersAlwaysAre) {
  const std::vector<std::byte> bytes(64, std::byte{0xff});
  EXPECT_TRUE(has_only_finite(bytes, DType::int32));
  EXPECT_TRUE(has_only_finite({}, DType::float32));
}

TEST(DType, NamesAreDifferentAndSizesKnown) {
  std::set<std::string_view> names;
  for (const auto dtype : all_dtypes) {
    EXPECT_EQ(static_cast<std::size_t>(dtype), names.size());
    EXPECT_NE(name_of(dtype), "unknown");
    EXPECT_GT(size_of(dtype), 0u);
    names.insert(name_of(dtype));
  }
  EXPECT_EQ(names.size(), 10u);
  EXPECT_EQ(name_of(DType::boolean), "bool");
  EXPECT_EQ(size_of(DType::bfloat16), 2u);
}

TEST(DType, NumbersOfEachTypeAreReadAtAnyPlace) {
  const auto number = [](DType dtype, auto value) {
    std::byte bytes[1 + sizeof value];
    std::memcpy(bytes + 1, &value, sizeof value);
    return number_at(bytes + 1, dtype);
  };
  const auto half = [&](std::uint16_t bits) { return number(DType::float16, bits); };
  EXPECT_EQ(half(0x3c00), 1);
  EXPECT_EQ(half(0xc100), -2.5);
  EXPECT_EQ(half(0x7bff), 65504);
  EXPECT_EQ(half(0x0001), std::ldexp(1.0, -24));
  EXPECT_EQ(half(0x83ff), -std::ldexp(1023.0, -24));
  EXPECT_TRUE(std::signbit(half(0x8000)));
  EXPECT_EQ(half(0xfc00), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(half(0x7c01)));
  EXPECT_EQ(number(DType::bfloat16, std::uint16_t{0xbfc0}), -1.5);
  EXPECT_EQ(number(DType::float32, 0.1F), 0.1F);
  EXPECT_EQ(number(DType::float64, 0.1), 0.1);
  EXPECT_EQ(number(DType::int32, std::int32_t{INT32_MIN}), INT32_MIN);
  EXPECT_EQ(number(DType::int64, std::int64_t{-9007199254740992}), -9007199254740992);
  EXPECT_EQ(number(DType::uint8, std::uint8_t{200}), 200);
  EXPECT_EQ(number(DType::boolean, std::uint8_t{2}), 1);
}

}  // namespace
}  // namespace farandole
