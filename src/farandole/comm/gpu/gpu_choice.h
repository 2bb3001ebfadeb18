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

// Returns the number of the GPU for a rank of `node`, as its process counts them. If each rank sees GPUs of its own, it
// takes its first one. If all ranks see the same GPUs, they take them in turn.
// Throws: UserError if there are fewer GPUs than ranks, or if only some ranks share GPUs.
int choose_gpu(std::span<const VisibleGpus> by_local_rank, int local_rank, const std::string& node);

}  // namespace farandole
