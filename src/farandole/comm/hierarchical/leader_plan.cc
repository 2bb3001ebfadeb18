#include "farandole/comm/hierarchical/leader_plan.h"

#include <algorithm>
#include <map>

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
}

}  // namespace farandole
