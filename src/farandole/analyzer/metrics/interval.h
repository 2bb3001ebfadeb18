// Sets of times as sorted, disjoint, half-open intervals, and their algebra in linear time. Plain values.
#pragma once

#include <cstdint>
#include <vector>

namespace farandole {

struct Interval {
  std::int64_t start = 0;
  std::int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

// Invariant: each start < its end < the next start.
class IntervalSet {
 public:
  IntervalSet() = default;
  // Any intervals in any order; empty and reversed ones count as nothing.
  explicit IntervalSet(std::vector<Interval> intervals);

  const std::vector<Interval>& intervals() const { return intervals_; }
  std::int64_t measure() const;

 private:
  friend IntervalSet unite(const IntervalSet&, const IntervalSet&);
  friend IntervalSet intersect(const IntervalSet&, const IntervalSet&);
  void append(Interval interval);  // its start must not be below the last one's

  std::vector<Interval> intervals_;
};

IntervalSet unite(const IntervalSet& a, const IntervalSet& b);
IntervalSet intersect(const IntervalSet& a, const IntervalSet& b);

// How much of `set` lies between each of the sorted `bounds` and the next: one value less than bounds.
std::vector<std::int64_t> measure_between(const IntervalSet& set, const std::vector<std::int64_t>& bounds);

}  // namespace farandole
