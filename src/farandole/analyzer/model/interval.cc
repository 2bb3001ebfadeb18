#include "farandole/analyzer/model/interval.h"

#include <algorithm>

namespace farandole {
namespace {

bool starts_before(const Interval& a, const Interval& b) {
  return a.start < b.start;
}

}  // namespace

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  if (!std::is_sorted(intervals.begin(), intervals.end(), starts_before))
    std::sort(intervals.begin(), intervals.end(), starts_before);
  for (const auto& interval : intervals) append(interval);
}

void IntervalSet::append(Interval interval) {
  if (interval.start >= interval.end) return;
  if (!intervals_.empty() && interval.start <= intervals_.back().end)
    intervals_.back().end = std::max(intervals_.back().end, interval.end);
  else
    intervals_.push_back(interval);
}

std::int64_t IntervalSet::measure() const {
  std::int64_t sum = 0;
  for (const auto& interval : intervals_) sum += interval.end - interval.start;
  return sum;
}

IntervalSet unite(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet result;
  result.intervals_.reserve(std::max(a.intervals_.size(), b.intervals_.size()));
  auto left = a.intervals_.begin();
  auto right = b.intervals_.begin();
  while (left != a.intervals_.end() || right != b.intervals_.end()) {
    const bool take_left =
        right == b.intervals_.end() || (left != a.intervals_.end() && left->start < right->start);
    result.append(take_left ? *left++ : *right++);
  }
  return result;
}

IntervalSet intersect(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet result;
  auto left = a.intervals_.begin();
  auto right = b.intervals_.begin();
  while (left != a.intervals_.end() && right != b.intervals_.end()) {
    result.append({std::max(left->start, right->start), std::min(left->end, right->end)});
    left->end < right->end ? ++left : ++right;
  }
  return result;
}

std::vector<std::int64_t> measure_between(const IntervalSet& set, const std::vector<std::int64_t>& bounds) {
  std::vector<std::int64_t> measures(bounds.empty() ? 0 : bounds.size() - 1);
  std::size_t slot = 0;
  for (const auto& interval : set.intervals()) {
    while (slot < measures.size() && bounds[slot + 1] <= interval.start) ++slot;
    for (auto at = slot; at < measures.size() && bounds[at] < interval.end; ++at)
      measures[at] += std::max<std::int64_t>(
          0, std::min(interval.end, bounds[at + 1]) - std::max(interval.start, bounds[at]));
  }
  return measures;
}

}  // namespace farandole
