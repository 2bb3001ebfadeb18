#include "farandole/comm/mpi/leader_plan.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace farandole {

LeaderPlan::LeaderPlan(std::span<const int> node_by_rank, int wanted) {
  std::map<int, int> number;  // of each name in node_by_rank
  for (std::size_t rank = 0; rank < node_by_rank.size(); ++rank) {
    const auto own = number.emplace(node_by_rank[rank], node_count()).first->second;
    if (own == node_count()) members.emplace_back();
    auto& ranks = members[static_cast<std::size_t>(own)];
    node.push_back(own);
    local.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(rank));
  }
  int largest = 1, smallest = static_cast<int>(node.size());
  for (const auto& ranks : members) {
    largest = std::max(largest, static_cast<int>(ranks.size()));
    smallest = std::min(smallest, static_cast<int>(ranks.size()));
  }
  leader_groups = wanted > 0 ? std::min(wanted, largest) : 2 * smallest >= largest ? smallest : largest;
  for (std::size_t rank = 0; rank < node.size(); ++rank) {
    int nearest = leader_groups - 1;
    while (server(node[rank], nearest) > local[rank]) --nearest;
    leader_group.push_back(nearest);
    by_leader_group.push_back(static_cast<int>(rank));
  }
  const auto place = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return std::tuple(leader_group[r], node[r], local[r]);
  };
  std::sort(by_leader_group.begin(), by_leader_group.end(),
            [&](int a, int b) { return place(a) < place(b); });
}

bool LeaderPlan::consecutive() const {
  return std::is_sorted(node.begin(), node.end());
}

}  // namespace farandole
