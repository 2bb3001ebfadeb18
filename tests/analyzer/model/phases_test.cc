#include "farandole/analyzer/model/phases.h"

#include <gtest/gtest.h>
#include <optional>
#include <random>

#include "lane.h"

namespace farandole {
namespace {

std::int64_t time_of(const std::vector<CategorySpan>& pieces, Category category) {
  return intervals_of(pieces, category).measure();
}

TEST(Innermost, GivesNestedTimeToTheInnerSpan) {
  const auto pieces = innermost({{0, 100, Category::step},
                                 {10, 30, Category::forward},
                                 {30, 80, Category::backward},
                                 {40, 50, Category::communication},
                                 {80, 95, Category::optimizer},
                                 {85, 90, Category::wait}});
  EXPECT_EQ(time_of(pieces, Category::forward), 20);
  EXPECT_EQ(time_of(pieces, Category::backward), 40);
  EXPECT_EQ(time_of(pieces, Category::communication), 10);
  EXPECT_EQ(time_of(pieces, Category::optimizer), 10);
  EXPECT_EQ(time_of(pieces, Category::wait), 5);
  EXPECT_EQ(time_of(pieces, Category::other), 15);
  EXPECT_EQ(time_of(pieces, Category::step), 0);
}

TEST(Innermost, LetsAnnotationsBelongToThePhaseAroundThem) {
  const auto pieces = innermost({{0, 100, Category::step},
                                 {10, 50, Category::forward},
                                 {20, 40, Category::other},
                                 {60, 70, Category::other}});
  EXPECT_EQ(time_of(pieces, Category::forward), 40);
  EXPECT_EQ(time_of(pieces, Category::other), 60);
}

TEST(Innermost, OrdersSpansThatStartTogetherByLength) {
  const auto pieces = innermost({{0, 5, Category::forward}, {0, 10, Category::step}});
  EXPECT_EQ(time_of(pieces, Category::forward), 5);
  EXPECT_EQ(time_of(pieces, Category::other), 5);
}

// Brute force: at each time, the open span that started last; of equal starts, the shorter one.
std::optional<Category> category_at(const std::vector<CategorySpan>& spans, std::int64_t time) {
  const CategorySpan* inner = nullptr;
  for (const auto& span : spans) {
    if (span.start > time || span.end <= time) continue;
    if (inner == nullptr || span.start > inner->start ||
        (span.start == inner->start && span.end <= inner->end))
      inner = &span;
  }
  return inner == nullptr ? std::nullopt : std::optional(inner->category);
}

TEST(Innermost, AgreesWithBruteForceAlsoWhereSpansDoNotNest) {
  const std::array categories = {Category::data, Category::forward, Category::backward, Category::wait,
                                 Category::checkpoint};
  std::mt19937 random(seed(2));
  for (int round = 0; round < 5'000; ++round) {
    std::vector<CategorySpan> spans(random() % 12);
    for (auto& span : spans) {
      span.start = random() % 100;
      span.end = span.start + random() % 40;
      span.category = categories[random() % categories.size()];
    }
    const auto pieces = innermost(spans);
    for (std::size_t i = 1; i < pieces.size(); ++i) ASSERT_LE(pieces[i - 1].end, pieces[i].start);
    for (std::int64_t time = 0; time < 140; ++time) {
      std::optional<Category> found;
      for (const auto& piece : pieces)
        if (piece.start <= time && time < piece.end) found = piece.category;
      ASSERT_EQ(found, category_at(spans, time)) << "round " << round << " time " << time;
    }
  }
}

}  // namespace
}  // namespace farandole
