// How much a node's threads could work until a time, when they share its cores. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "farandole/analyzer/metrics/interval.h"

namespace farandole {

// Goes on with the part of full speed that each thread gets while others run.
class WorkClock {
 public:
  // As fast as time.
  WorkClock() = default;
  // `idle[i]`: when the i-th thread, which keeps `demand` cores busy, waits; `beside`: when a single thread
  // works beside them. All within `window`; `cores` above 0.
  WorkClock(const std::vector<std::vector<Interval>>& idle, const std::vector<Interval>& beside,
            double demand, double cores, Interval window);

  double at(std::int64_t time) const;
  bool is_time() const { return marks_.empty(); }

 private:
  struct Mark {
    std::int64_t time = 0;
    double work = 0;
    double speed = 1;  // from here on
  };
  std::vector<Mark> marks_;
};

// A thread's work since the beginning of an interval: all but what it waits for.
class ThreadClock {
 public:
  // `waits`: sorted and disjoint. `clock` outlives this.
  ThreadClock(const WorkClock& clock, const std::vector<Interval>& waits, Interval interval);

  double at(std::int64_t time) const;  // within the interval

 private:
  struct Wait {
    Interval when;
    double before = 0;  // waited until it begins
  };
  const WorkClock& clock_;
  const double begin_;
  std::vector<Wait> waits_;
};

}  // namespace farandole
