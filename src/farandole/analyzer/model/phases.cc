#include "farandole/analyzer/model/phases.h"

#include <algorithm>

namespace farandole {
namespace {

bool outer_first(const CategorySpan& a, const CategorySpan& b) {
  return a.start != b.start ? a.start < b.start : a.end > b.end;
}

// The spans that are open at the current time of the sweep, the innermost last, and the finished pieces.
class Sweep {
 public:
  explicit Sweep(std::size_t spans) { pieces_.reserve(2 * spans); }  // Each begin and end adds one piece.

  void open(CategorySpan span) {
    close_until(span.start);
    if (span.category == Category::step) span.category = Category::other;
    if (span.category == Category::other && !open_.empty()) span.category = open_.back().category;
    open_.push_back(span);
  }

  // Adds the pieces from the current time of the sweep to `time`.
  void close_until(std::int64_t time) {
    while (!open_.empty() && open_.back().end <= time) {
      emit(open_.back().end);
      open_.pop_back();
    }
    emit(time);
    now_ = std::max(now_, time);
  }

  std::vector<CategorySpan> finish() {
    while (!open_.empty()) close_until(open_.back().end);
    return std::move(pieces_);
  }

 private:
  void emit(std::int64_t until) {
    if (open_.empty() || until <= now_) return;
    const auto category = open_.back().category;
    if (!pieces_.empty() && pieces_.back().end == now_ && pieces_.back().category == category)
      pieces_.back().end = until;
    else
      pieces_.push_back({now_, until, category});
    now_ = until;
  }

  std::vector<CategorySpan> open_;
  std::vector<CategorySpan> pieces_;
  std::int64_t now_ = INT64_MIN;
};

}  // namespace

Phase phase_of(Category category) {
  switch (category) {
    case Category::data:
      return Phase::data;
    case Category::forward:
      return Phase::forward;
    case Category::backward:
      return Phase::backward;
    case Category::optimizer:
      return Phase::optimizer;
    case Category::communication:
    case Category::wait:
      return Phase::wait;
    case Category::checkpoint:
      return Phase::checkpoint;
    case Category::evaluation:
      return Phase::evaluation;
    default:
      return Phase::other;
  }
}

std::vector<CategorySpan> innermost(std::vector<CategorySpan> spans) {
  if (!std::is_sorted(spans.begin(), spans.end(), outer_first))
    std::stable_sort(spans.begin(), spans.end(), outer_first);
  Sweep sweep(spans.size());
  for (const auto& span : spans)
    if (span.start < span.end) sweep.open(span);
  return sweep.finish();
}

IntervalSet intervals_of(const std::vector<CategorySpan>& pieces, Category category) {
  std::vector<Interval> found;
  for (const auto& piece : pieces)
    if (piece.category == category) found.push_back({piece.start, piece.end});
  return IntervalSet(std::move(found));
}

}  // namespace farandole
