// Who this rank is among the ranks of the job and of its node. Plain values.
#pragma once

#include <string>
#include <vector>

namespace farandole {

struct RankLayout {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this node
  int local_size = 1;
  std::string node;                // this node's host name
  std::vector<std::string> hosts;  // host name of every rank, by rank
  std::vector<int> nodes;          // node of every rank, by rank: numbered from 0 by their lowest ranks
  int node_cores = 1;              // that the ranks of this node may use, all together
};

}  // namespace farandole
