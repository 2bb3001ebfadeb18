#include "farandole/analyzer/model/packed_events.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"

#include "farandole/analyzer/model/interval.h"
#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {
namespace {

bool equal(const std::vector<CategorySpan>& a, const std::vector<CategorySpan>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const CategorySpan& x, const CategorySpan& y) {
    return x.start == y.start && x.end == y.end && x.category == y.category;
  });
}

// Nested spans, as a thread records them.
void nest(std::mt19937& random, std::int64_t start, std::int64_t end, int depth,
          std::vector<CategorySpan>& spans) {
  while (start < end) {
    const auto from = start + static_cast<std::int64_t>(random() % 20);
    const auto to = std::min(end, from + 1 + static_cast<std::int64_t>(random() % 200));
    if (from >= to) return;
    spans.push_back({from, to, static_cast<Category>(random() % 12)});
    if (depth > 0) nest(random, from, to, depth - 1, spans);
    start = to;
  }
}

TEST(PackedSpans, GivesBackWhatWasPutIn) {
  std::mt19937_64 random(seed(1));
  PackedSpans packed;
  std::vector<CategorySpan> spans;
  for (int i = 0; i < 10'000; ++i) {
    const auto start =
        static_cast<std::int64_t>(random() >> (3 + random() % 60)) * (random() % 2 == 0 ? 1 : -1);
    const auto length = static_cast<std::int64_t>(random() >> (5 + random() % 59));
    spans.push_back({start, start + length, static_cast<Category>(random() % 12)});
    packed.append(spans.back());
  }
  std::vector<CategorySpan> again;
  packed.unpack(again);
  EXPECT_TRUE(equal(spans, again));
}

TEST(PackedNamedSpans, GiveBackWhatWasPutIn) {
  std::mt19937_64 random(seed(4));
  PackedNamedSpans packed;
  std::vector<NamedSpan> spans, again;
  for (int i = 0; i < 10'000; ++i) {
    const auto start = static_cast<std::int64_t>(random() >> (3 + random() % 60));
    NamedSpan span{.start = start, .end = start + static_cast<std::int64_t>(random() >> (5 + random() % 59))};
    span.launch_is = static_cast<NamedSpan::Launch>(random() % 3);
    if (span.launch_is == NamedSpan::Launch::time)
      span.launch = start - static_cast<std::int64_t>(random() >> 40);
    if (span.launch_is == NamedSpan::Launch::correlation)
      span.launch = static_cast<std::int64_t>(random() >> 1);
    span.bytes = random() % 2 == 0 ? 0 : random() >> random() % 64;
    span.name = static_cast<std::uint32_t>(random());
    if (random() % 2 == 0) span.range = static_cast<std::uint32_t>(random() >> 33);
    span.category = static_cast<Category>(random() % 12);
    span.phase = static_cast<std::uint8_t>(random() % (phase_count + 1));
    packed.append(span);
    spans.push_back(span);
  }
  packed.unpack(again);
  ASSERT_EQ(again.size(), spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto &a = again[i], &b = spans[i];
    EXPECT_TRUE(a.start == b.start && a.end == b.end && a.launch == b.launch && a.bytes == b.bytes &&
                a.name == b.name && a.range == b.range && a.category == b.category && a.phase == b.phase &&
                a.launch_is == b.launch_is)
        << i;
  }
}

TEST(PackedCollectives, GiveBackWhatWasPutIn) {
  std::mt19937_64 random(seed(2));
  PackedCollectives packed;
  std::vector<CollectiveSpan> spans;
  for (int i = 0; i < 10'000; ++i) {
    const auto start = static_cast<std::int64_t>(random() >> (3 + random() % 60));
    spans.push_back({start,
                     start + static_cast<std::int64_t>(random() >> (3 + random() % 60)),
                     {static_cast<std::uint32_t>(random()), static_cast<std::uint16_t>(random()), random()},
                     random() % 2 == 0,
                     static_cast<std::uint32_t>(random()),
                     static_cast<std::uint32_t>(random())});
    spans.back().ranks = static_cast<std::uint32_t>(random());
    spans.back().arrival_known = random() % 2 == 0;
    packed.append(spans.back());
  }
  std::vector<CollectiveSpan> again;
  packed.unpack(again);
  ASSERT_EQ(again.size(), spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(again[i].start, spans[i].start);
    EXPECT_EQ(again[i].end, spans[i].end);
    EXPECT_EQ(again[i].what.sequence, spans[i].what.sequence);
    EXPECT_EQ(again[i].what.communicator, spans[i].what.communicator);
    EXPECT_EQ(again[i].what.bytes, spans[i].what.bytes);
    EXPECT_EQ(again[i].matchable, spans[i].matchable);
    EXPECT_EQ(again[i].ranks, spans[i].ranks);
    EXPECT_EQ(again[i].arrival_known, spans[i].arrival_known);
    EXPECT_EQ(again[i].name, spans[i].name);
    EXPECT_EQ(again[i].operation, spans[i].operation);
  }
}

TEST(ThreadSpans, DropOnlyWhatChangesNothing) {
  std::mt19937 random(seed(3));
  std::size_t seen = 0;
  std::size_t kept = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<CategorySpan> spans, left;
    nest(random, 0, 2'000, 3, spans);
    ThreadSpans thread;
    for (const auto& span : spans) thread.add(span);
    thread.kept().unpack(left);
    EXPECT_TRUE(equal(innermost(spans), innermost(left)));
    seen += spans.size();
    kept += left.size();
  }
  EXPECT_LT(kept, seen);
}

TEST(ThreadSpans, KeepOneSpanOfAPhaseWithManyLayers) {
  ThreadSpans thread;
  for (int step = 0; step < 1'000; ++step) {
    thread.add({step * 1'000, step * 1'000 + 900, Category::forward});
    for (int layer = 0; layer < 90; ++layer)
      thread.add({step * 1'000 + layer * 10, step * 1'000 + layer * 10 + 10,
                  layer % 2 == 0 ? Category::forward : Category::other});
  }
  EXPECT_EQ(thread.seen(), 91'000U);
  EXPECT_EQ(thread.kept().size(), 1'000U);
}

TEST(Distribution, IsExactForFewAndCloseForManyValues) {
  std::mt19937 random(seed(4));
  Distribution distribution;
  std::vector<double> values;
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{1'000}, Distribution::exact_values, std::size_t{300'000}}) {
    while (values.size() < count) {
      values.push_back(random() % 50 == 0 ? 0 : std::exp(static_cast<double>(random() % 10'000) / 1'000));
      distribution.add(values.back());
    }
    for (const double fraction : {0.0, 0.1, 0.5, 0.95, 1.0}) {
      const double exact = quantile(values, fraction);
      EXPECT_NEAR(distribution.quantile(fraction), exact,
                  count <= Distribution::exact_values ? 0 : 0.004 * exact);
    }
    EXPECT_EQ(distribution.count(), count);
  }
  EXPECT_EQ(Distribution().quantile(0.5), 0);
}

TEST(MeasureBetween, AddsUpToTheMeasure) {
  std::mt19937 random(seed(5));
  for (int round = 0; round < 200; ++round) {
    std::vector<Interval> intervals;
    for (int i = 0; i < 20; ++i) {
      const std::int64_t start = random() % 1'000;
      intervals.push_back({start, start + static_cast<std::int64_t>(random() % 100)});
    }
    const IntervalSet set(intervals);
    std::vector<std::int64_t> bounds;
    for (std::int64_t bound = 0; bound < 1'200; bound += 1 + random() % 150) bounds.push_back(bound);
    const auto measures = measure_between(set, bounds);
    ASSERT_EQ(measures.size() + 1, bounds.size());
    for (std::size_t i = 0; i < measures.size(); ++i)
      EXPECT_EQ(measures[i], intersect(set, IntervalSet({{bounds[i], bounds[i + 1]}})).measure());
  }
}

}  // namespace
}  // namespace farandole
