#include "farandole/analyzer/what_if/shared_cores.h"

#include <algorithm>

namespace farandole {

void SharedCores::catch_up(Node& node, double now) const {
  node.progress += std::max(0.0, now - node.time) * speed_of(cores_, node.demand);
  node.time = std::max(node.time, now);
}

void SharedCores::queue(std::size_t index) {
  auto& node = nodes_[index];
  if (node.work.empty()) {
    node.demand = 0;  // Removes the rounding error.
    first_end_[index] = std::numeric_limits<double>::infinity();
  } else {
    const double left = std::max(0.0, node.work.top().target - node.progress);
    first_end_[index] = node.time + left / speed_of(cores_, node.demand);
    ends_.emplace(first_end_[index], index);
  }
  while (!ends_.empty() && ends_.top().first != first_end_[ends_.top().second]) ends_.pop();
}

void SharedCores::start(std::size_t worker, std::size_t node_index, double ns, double demand, double now) {
  auto& node = nodes_[node_index];
  catch_up(node, now);
  node.work.push({node.progress + std::max(0.0, ns), worker, demand});
  node.demand += demand;
  queue(node_index);
}

std::optional<double> SharedCores::next() const {
  if (ends_.empty()) return std::nullopt;
  return ends_.top().first;
}

SharedCores::Done SharedCores::take() {
  const auto [time, index] = ends_.top();
  ends_.pop();
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
