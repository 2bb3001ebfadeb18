#include "farandole/comm/gpu/gpu_choice.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "farandole/base/error.h"

namespace farandole {

int choose_gpu(std::span<const VisibleGpus> by_local_rank, int local_rank, const std::string& node,
               int ranks_per_gpu) {
  const int ranks = static_cast<int>(by_local_rank.size());
  std::map<std::string, int> ranks_with_first;
  for (const auto& gpus : by_local_rank) ++ranks_with_first[gpus.first];
  const auto most =
      std::max_element(ranks_with_first.begin(), ranks_with_first.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->second;
  const bool all_see_one = std::all_of(by_local_rank.begin(), by_local_rank.end(),
                                       [](const VisibleGpus& gpus) { return gpus.count == 1; });
  if (most == 1 || (all_see_one && most <= ranks_per_gpu)) return 0;
  const int count = by_local_rank.front().count;
  if (ranks_with_first.size() > 1 ||
      std::any_of(by_local_rank.begin(), by_local_rank.end(),
                  [&](const VisibleGpus& gpus) { return gpus.count != count; }))
    throw UserError(fmt::format(
        "the ranks on {} see different GPUs, but some see the same ones; let all tasks of a node see "
        "all of its GPUs, or give each task GPUs of its own (CUDA_VISIBLE_DEVICES)",
        node));
  if (ranks > count * ranks_per_gpu)
    throw UserError(fmt::format(
        "{} has {} GPU{} for {} ranks; start as many ranks on each node as it has GPUs, let ranks share GPUs "
        "(--ranks-per-gpu {}), or use --device cpu",
        node, count, count == 1 ? "" : "s", ranks, (ranks + count - 1) / count));
  return local_rank / ranks_per_gpu;
}

}  // namespace farandole
