// Which ranks of a group lie together on a node, and which rank of each node takes part in which leader group. Plain
// values.
#pragma once

#include <span>
#include <vector>

namespace farandole {

// A leader group is a path between nodes: it has one rank of each node, which may serve several leader groups. All ranks of a
// node serve about as many; those of one rank have consecutive numbers. Nodes are numbered by their lowest
// ranks.
struct LeaderPlan {
  // leader_groups == 0: as many as the smallest node has ranks, so that nobody serves two, one after the other; but
  // where that leaves more than half of the largest node's ranks idle, as many as that one has. Never more.
  explicit LeaderPlan(std::span<const int> node_by_rank, int leader_groups = 0);

  int node_count() const { return static_cast<int>(members.size()); }
  int local_size(int of_node) const {
    return static_cast<int>(members[static_cast<std::size_t>(of_node)].size());
  }
  // The local rank that serves a leader group on a node.
  int server(int on_node, int in_leader_group) const {
    return static_cast<int>(long{in_leader_group} * local_size(on_node) / leader_groups);
  }
  // Whether ranks count up from node to node, so that in rank order a node's parts lie together.
  bool consecutive() const;

  int leader_groups = 1;
  std::vector<std::vector<int>> members;  // of each node, by local rank: ranks in the group, ascending
  std::vector<int> node;                  // by rank in the group
  std::vector<int> local;                 // by rank in the group
  // By rank in the group: the leader group nearest to it, which is the last that it serves, or that a lower rank of
  // its node serves for it.
  std::vector<int> leader_group;
  std::vector<int> by_leader_group;  // the group's ranks in the order of leader group, node, local rank
};

}  // namespace farandole
