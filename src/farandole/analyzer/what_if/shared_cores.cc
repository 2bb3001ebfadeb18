#include "farandole/analyzer/what_if/shared_cores.h"

#include <algorithm>

namespace farandole {

void SharedCores::catch_up(Node& node, double now) const {
  node.progress += std::max(0.0, now - node.time) * speed_of(cores_, node.demand);
  node.time = std::max(node.time, now);
}

void SharedCores::queue(std::size_t index) {
  queued_.resize(nodes_.size());
  auto& node = nodes_[index];
  next_.erase({queued_[index], index});
  if (node.work.empty()) {
    node.demand = 0;  // what rounding leaves of it
    return;
  }
  const double left = std::max(0.0, node.work.top().target - node.progress);
  queued_[index] = node.time + left / speed_of(cores_, node.demand);
  next_.insert({queued_[index], index});
}

void SharedCores::start(std::size_t worker, std::size_t node_index, double ns, double demand, double now) {
  auto& node = nodes_[node_index];
  catch_up(node, now);
  node.work.push({node.progress + std::max(0.0, ns), worker, demand});
  node.demand += demand;
  queue(node_index);
}

std::optional<double> SharedCores::next() const {
  if (next_.empty()) return std::nullopt;
  return next_.begin()->first;
}

SharedCores::Done SharedCores::take() {
  const auto [time, index] = *next_.begin();
  auto& node = nodes_[index];
  catch_up(node, time);
  const auto first = node.work.top();
  node.work.pop();
  node.progress = std::max(node.progress, first.target);
  node.demand -= first.demand;
  queue(index);
  return {time, first.worker};
}

}  // namespace farandole
