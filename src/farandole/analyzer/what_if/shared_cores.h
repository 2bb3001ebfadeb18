// Simulates threads that share the cores of a node equally.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

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

}  // namespace farandole
