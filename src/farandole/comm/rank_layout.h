// The position of this rank among the ranks of the job and of its node. Plain values.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <numeric>
#include <string>
#include <vector>

namespace farandole {

struct RankLayout {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this node
  int local_size = 1;
  int machine_ranks = 1;  // ranks that share this kernel: several nodes can be containers of one machine
  std::string node;       // this node's host name
  std::vector<std::string> hosts;  // host name of every rank, by rank
  // Node of every rank, by rank; nodes are numbered from 0 in the order of their lowest ranks.
  std::vector<int> nodes;
  int node_cores = 1;  // number of cores that the ranks of this node may use together
};

// 0, 1, … size − 1.
inline std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace farandole
