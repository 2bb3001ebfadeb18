#include "farandole/analyzer/model/interval.h"

#include <bitset>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"

namespace farandole {
namespace {

constexpr std::size_t span_length = 300;
using Bits = std::bitset<span_length>;

Bits bits_of(const std::vector<Interval>& intervals) {
  Bits bits;
  for (const auto& interval : intervals)
    for (auto i = interval.start; i < interval.end; ++i) bits.set(static_cast<std::size_t>(i));
  return bits;
}

std::vector<Interval> random_intervals(std::mt19937& random) {
  std::vector<Interval> intervals(random() % 20);
  for (auto& interval : intervals) {
    interval.start = random() % 250;
    interval.end =
        interval.start + random() % 50 - (random() % 8 == 0 ? 20 : 0);  // some empty, some reversed
  }
  return intervals;
}

void expect_sound(const IntervalSet& set, const Bits& bits) {
  EXPECT_EQ(bits_of(set.intervals()), bits);
  EXPECT_EQ(set.measure(), static_cast<std::int64_t>(bits.count()));
  for (std::size_t i = 0; i < set.intervals().size(); ++i) {
    EXPECT_LT(set.intervals()[i].start, set.intervals()[i].end);
    if (i > 0) {
      EXPECT_LT(set.intervals()[i - 1].end, set.intervals()[i].start);
    }
  }
}

TEST(IntervalSet, AgreesWithABitmap) {
  std::mt19937 random(seed(1));
  for (int round = 0; round < 20'000 && !::testing::Test::HasFailure(); ++round) {
    const auto left = random_intervals(random);
    const auto right = random_intervals(random);
    const IntervalSet a(left);
    const IntervalSet b(right);
    expect_sound(a, bits_of(left));
    expect_sound(unite(a, b), bits_of(left) | bits_of(right));
    expect_sound(intersect(a, b), bits_of(left) & bits_of(right));
  }
}

TEST(IntervalSet, JoinsWhatTouches) {
  EXPECT_EQ(IntervalSet({{5, 7}, {1, 5}}).intervals(), (std::vector<Interval>{{1, 7}}));
  EXPECT_EQ(IntervalSet({{1, 5}, {2, 3}}).intervals(), (std::vector<Interval>{{1, 5}}));
}

TEST(IntervalSet, OfNothingIsEmpty) {
  const IntervalSet nothing({{3, 3}, {9, 2}});
  EXPECT_TRUE(nothing.intervals().empty());
  EXPECT_EQ(nothing.measure(), 0);
}

}  // namespace
}  // namespace farandole
