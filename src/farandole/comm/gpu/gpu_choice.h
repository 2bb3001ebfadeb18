// Which GPU of its node a rank uses.
// Thread safety: any thread may call this at any time.
#pragma once

#include <span>
#include <string>

namespace farandole {

// What a rank can use: the number of GPUs and the UUID of its GPU 0.
struct VisibleGpus {
  int count = 0;
  std::string first;
};

// Returns the number of the GPU for a rank of `node`, as its process counts them. If each rank sees GPUs of
// its own, it takes its first one. If all ranks see the same GPUs, they take them in turn; then as many ranks
// with neighbouring numbers as may share a GPU (`ranks_per_gpu`) do so.
// Throws: UserError if there are too few GPUs for the ranks, or if ranks see different GPUs of which some
// are the same.
int choose_gpu(std::span<const VisibleGpus> by_local_rank, int local_rank, const std::string& node,
               int ranks_per_gpu = 1);

}  // namespace farandole
