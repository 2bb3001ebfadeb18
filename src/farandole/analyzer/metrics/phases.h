// Splits the training thread's nested spans into phases: at each time the innermost one counts. Plain
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "farandole/analyzer/metrics/interval.h"
#include "farandole/timeline/event.h"

namespace farandole {

// What the report calls phases. A collective that the training thread runs itself counts as `wait`.
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

// The innermost category at each time that any span covers, as disjoint pieces sorted by time. Innermost is
// the span that started last (of equal starts: the shorter), so spans that overlap without nesting are
// well-defined too. An annotation
// (`other`) belongs to the phase around it, and so do the parts of a `step` that nothing else covers: they
// are `other`.
std::vector<CategorySpan> innermost(std::vector<CategorySpan> spans);

IntervalSet intervals_of(const std::vector<CategorySpan>& pieces, Category category);

}  // namespace farandole
