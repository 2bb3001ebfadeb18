// Which ranks of a group lie together on a node, and which rank of each node takes part in which rail. Plain
// values.
#pragma once

#include <span>
#include <vector>

namespace farandole {

// A rail is a path between nodes: it has one rank of each node, which may serve several rails. All ranks of a
// node serve about as many; those of one rank have consecutive numbers. Nodes are numbered by their lowest
// ranks.
struct RailPlan {
  // rails == 0: as many as the smallest node has ranks, so that nobody serves two, one after the other; but
  // where that leaves more than half of the largest node's ranks idle, as many as that one has. Never more.
  explicit RailPlan(std::span<const int> node_by_rank, int rails = 0);

  int node_count() const { return static_cast<int>(members.size()); }
  int local_size(int of_node) const {
    return static_cast<int>(members[static_cast<std::size_t>(of_node)].size());
  }
  // The local rank that serves a rail on a node.
  int server(int on_node, int on_rail) const {
    return static_cast<int>(long{on_rail} * local_size(on_node) / rails);
  }
  // Whether ranks count up from node to node, so that in rank order a node's parts lie together.
  bool consecutive() const;

  int rails = 1;
  std::vector<std::vector<int>> members;  // of each node, by local rank: ranks in the group, ascending
  std::vector<int> node;                  // by rank in the group
  std::vector<int> local;                 // by rank in the group
  // By rank in the group: the rail nearest to it, which is the last that it serves, or that a lower rank of
  // its node serves for it.
  std::vector<int> rail;
  std::vector<int> by_rail;  // the group's ranks in the order of rail, node, local rank
};

}  // namespace farandole
