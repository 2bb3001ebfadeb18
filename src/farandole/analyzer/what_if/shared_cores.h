// Threads that share a node's cores: what runs when, if each gets its part. One thread per object.
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

// What part of its full speed work gets while `demand` cores are asked for; `cores` 0: there are enough.
inline double speed_of(double cores, double demand) {
  return cores > 0 && demand > cores ? cores / demand : 1;
}

// Work that ends when its node's cores have done it (processor sharing). Times are ns.
class SharedCores {
 public:
  SharedCores(std::size_t nodes, double cores)
      : nodes_(nodes), cores_(cores), first_end_(nodes, std::numeric_limits<double>::infinity()) {}

  // `worker` is busy on `node` for `ns`, had it the cores to itself of which it keeps `demand` busy. Times
  // passed to this object never go back.
  void start(std::size_t worker, std::size_t node, double ns, double demand, double now);

  struct Done {
    double time = 0;
    std::size_t worker = 0;
  };
  // The next work that ends, if nothing else starts before.
  std::optional<double> next() const;
  Done take();  // there must be one

 private:
  struct Work {
    double target = 0;  // of the node's progress
    std::size_t worker = 0;
    double demand = 0;
    bool operator>(const Work& other) const {
      return std::pair(target, worker) > std::pair(other.target, other.worker);
    }
  };
  struct Node {
    std::priority_queue<Work, std::vector<Work>, std::greater<>> work;
    double demand = 0;
    double progress = 0;  // ns of work that each worker on it has done since the start
    double time = 0;      // at which `progress` was so
  };
  using End = std::pair<double, std::size_t>;  // of a node's first work
  void catch_up(Node& node, double now) const;
  void queue(std::size_t index);

  std::vector<Node> nodes_;
  const double cores_;
  std::vector<double> first_end_;  // by node; infinite: it has no work
  // Also of ends that are no more those of first_end_, but for the first of all.
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

}  // namespace farandole
