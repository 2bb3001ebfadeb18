#include "farandole/comm/gpu/gpu_choice.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "farandole/base/error.h"

namespace farandole {

int choose_gpu(std::span<const VisibleGpus> by_local_rank, int local_rank, const std::string& node) {
  const int ranks = static_cast<int>(by_local_rank.size());
  std::set<std::string> first;
  for (const auto& gpus : by_local_rank) first.insert(gpus.first);
  if (first.size() == by_local_rank.size()) return 0;
  const int count = by_local_rank.front().count;
  if (first.size() > 1 || std::any_of(by_local_rank.begin(), by_local_rank.end(),
                                      [&](const VisibleGpus& gpus) { return gpus.count != count; }))
    throw UserError(fmt::format(
        "the ranks on {} see different GPUs, but some see the same ones; let all tasks of a node see "
        "all of its GPUs, or give each task GPUs of its own (CUDA_VISIBLE_DEVICES)",
        node));
  if (ranks > count)
    throw UserError(
        fmt::format("{} has {} GPU{} for {} ranks; start as many ranks on each node as it has GPUs, or use "
                    "--device cpu",
                    node, count, count == 1 ? "" : "s", ranks));
  return local_rank;
}

}  // namespace farandole
