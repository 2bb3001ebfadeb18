// Threads that share the cores of a node equally: a simulation of them, and clocks of the work that
// they can do.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "farandole/analyzer/metrics/interval.h"

namespace farandole {

// Returns the relative speed of work when `demand` cores are requested. `cores` = 0 means that
// there are enough cores.
inline double speed_of(double cores, double demand) {
  return cores > 0 && demand > cores ? cores / demand : 1;
}

// Work ends when the cores of its node have completed it (processor sharing). Units: nanoseconds.
class SharedCores {
 public:
  SharedCores(std::size_t nodes, double cores)
      : nodes_(nodes), cores_(cores), first_end_(nodes, std::numeric_limits<double>::infinity()) {}

  // Starts work of `worker` on `node`. `ns` is its duration if the worker did not share its cores; `demand`
  // is the number of cores that it uses. Times passed to this object must not decrease.
  void start(std::size_t worker, std::size_t node, double ns, double demand, double now);

  struct Done {
    double time = 0;
    std::size_t worker = 0;
  };
  // Returns when the next work ends if nothing else starts before.
  std::optional<double> next() const;
  Done take();  // There must be work.

 private:
  struct Work {
    double target = 0;  // Compared with the progress of the node.
    std::size_t worker = 0;
    double demand = 0;
    bool operator>(const Work& other) const {
      return std::pair(target, worker) > std::pair(other.target, other.worker);
    }
  };
  struct Node {
    std::priority_queue<Work, std::vector<Work>, std::greater<>> work;
    double demand = 0;
    double progress = 0;  // Nanoseconds of work that each worker on the node has completed since the start.
    double time = 0;      // Time of `progress`.
  };
  using End = std::pair<double, std::size_t>;  // End of the first work of a node.
  void catch_up(Node& node, double now) const;
  void queue(std::size_t index);

  std::vector<Node> nodes_;
  const double cores_;
  std::vector<double> first_end_;  // Indexed by node; infinite: the node has no work.
  // May contain ends that differ from first_end_; the first entry is always valid.
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

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
