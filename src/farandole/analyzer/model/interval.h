// Sets of times as sorted, disjoint, half-open intervals, with operations in linear time. Plain values.
// Thread safety: any thread may call this at any time.
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
  // Accepts intervals in any order. Empty and reversed intervals are ignored.
  explicit IntervalSet(std::vector<Interval> intervals);

  const std::vector<Interval>& intervals() const { return intervals_; }
  std::int64_t measure() const;

 private:
  friend IntervalSet unite(const IntervalSet&, const IntervalSet&);
  friend IntervalSet intersect(const IntervalSet&, const IntervalSet&);
  void append(Interval interval);  // `interval` must not start before the last one.

  std::vector<Interval> intervals_;
};

IntervalSet unite(const IntervalSet& a, const IntervalSet& b);
IntervalSet intersect(const IntervalSet& a, const IntervalSet& b);

// Returns how much of `set` lies between successive `bounds`, which are sorted. The result has one
// value less than `bounds`.
std::vector<std::int64_t> measure_between(const IntervalSet& set, const std::vector<std::int64_t>& bounds);

}  // namespace farandole
