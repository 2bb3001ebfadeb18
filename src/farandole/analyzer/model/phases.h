// Splits the nested spans of the training thread into phases. At each time the innermost
// span counts. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "farandole/analyzer/model/interval.h"
#include "farandole/timeline/event.h"

namespace farandole {

// The phases of the report. A collective on the training thread counts as `wait`.
enum class Phase : std::uint8_t { data, forward, backward, optimizer, wait, checkpoint, evaluation, other };
inline constexpr std::size_t phase_count = 8;
inline constexpr std::array<std::string_view, phase_count> phase_names = {
    "data", "forward", "backward", "optimizer", "wait", "checkpoint", "evaluation", "other"};
using PhaseTimes = std::array<std::int64_t, phase_count>;  // nanoseconds

Phase phase_of(Category category);

struct CategorySpan {
  std::int64_t start = 0;
  std::int64_t end = 0;
  Category category = Category::other;
};

// Returns the innermost category at each time that a span covers, as disjoint pieces ordered by time. The
// innermost span is the one that started last; for equal starts, the shorter one. Therefore the result is
// also defined for spans that overlap without nesting. An annotation (`other`) belongs to the phase around
// it. Parts of a `step` that no other span covers are `other`.
std::vector<CategorySpan> innermost(std::vector<CategorySpan> spans);

IntervalSet intervals_of(const std::vector<CategorySpan>& pieces, Category category);

}  // namespace farandole
