// The work that the threads of a node can do until a time if they share its cores. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "farandole/analyzer/metrics/interval.h"

namespace farandole {

// The clock advances with the share of full speed that each thread gets.
class WorkClock {
 public:
  // A clock that advances like time.
  WorkClock() = default;
  // `idle[i]`: when thread i, which uses `demand` cores, waits. `beside`: when one additional thread works.
  // All intervals lie within `window`; `cores` is positive.
  WorkClock(const std::vector<std::vector<Interval>>& idle, const std::vector<Interval>& beside,
            double demand, double cores, Interval window);

  double at(std::int64_t time) const;
  bool is_time() const { return marks_.empty(); }

 private:
  struct Mark {
    std::int64_t time = 0;
    double work = 0;
    double speed = 1;  // From this time on.
  };
  std::vector<Mark> marks_;
};

// The work of a thread since the beginning of an interval, without its waits.
class ThreadClock {
 public:
  // `waits` must be sorted and disjoint. `clock` must outlive this object.
  ThreadClock(const WorkClock& clock, const std::vector<Interval>& waits, Interval interval);

  double at(std::int64_t time) const;  // `time` must be within the interval.

 private:
  struct Wait {
    Interval when;
    double before = 0;  // Waiting time before this wait.
  };
  const WorkClock& clock_;
  const double begin_;
  std::vector<Wait> waits_;
};

}  // namespace farandole
