// Which ranks exchange data between nodes.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <span>
#include <vector>

namespace farandole {

// Assigns the ranks of a group to nodes and to leader groups. A leader group is a path between nodes. It has
// one rank of each node, and a rank may serve several leader groups. All ranks of a node serve about the same
// number of leader groups, and the leader groups of one rank have consecutive numbers. Nodes are numbered in
// the order of their lowest ranks.
struct LeaderPlan {
  // leader_groups == 0 chooses the number of ranks of the smallest node, so that no rank serves two leader
  // groups one after the other. If more than half of the largest node's ranks would then be idle, it chooses
  // the number of ranks of the largest node. The number is never larger than that.
  explicit LeaderPlan(std::span<const int> node_by_rank, int leader_groups = 0);

  int node_count() const { return static_cast<int>(members.size()); }
  int local_size(int of_node) const {
    return static_cast<int>(members[static_cast<std::size_t>(of_node)].size());
  }
  // The local rank that serves a leader group on a node.
  int server(int on_node, int in_leader_group) const {
    return static_cast<int>(long{in_leader_group} * local_size(on_node) / leader_groups);
  }

  int leader_groups = 1;
  std::vector<std::vector<int>> members;  // by node and local rank: ranks in the group, ascending
  std::vector<int> node;                  // by rank in the group
  std::vector<int> local;                 // by rank in the group
};

}  // namespace farandole
