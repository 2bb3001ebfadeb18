#include "farandole/train/optimizer/sharing_choice.h"

#include <algorithm>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/train/optimizer/bucket_optimizer.h"

namespace farandole {
namespace {

std::string find_reason(const DistributedOptimizerOptions& options, torch::optim::Optimizer& optimizer,
                        const TrainedParameters& dense, Communicator& ranks, const SharingFacts& facts) {
  const auto has_other_type = [](const torch::Tensor& tensor) {
    return tensor.scalar_type() != torch::kFloat32 && tensor.scalar_type() != torch::kFloat64;
  };
  if (options.synchronization.of_parameters()) return "the ranks average parameters";
  if (ranks.size == 1) return "there is one rank";
  if (facts.on_gpu && options.shard != Shard::required)
    return "the ranks compute on GPUs, where shard must be on";
  if (facts.on_gpu && !facts.can_gather) return "ranks share GPUs";
  if (!options.sparse_parameters.empty()) return "there are sparse gradients";
  if (options.compression.of_ranks()) return "gradients are compressed";
  if (!has_fused_update(optimizer)) return "the optimizer is not SGD, Adam, AdamW or RMSprop";
  if (facts.shares_parameters) return "another optimizer has the same parameters";
  if (dense.tensors.empty() || std::ranges::any_of(dense.tensors, has_other_type))
    return "there are parameters of other types than float32 and float64";
  if (!facts.on_gpu && ranks.node_sharing() == nullptr) return "no ranks on the same node share memory";
  return {};
}

}  // namespace

std::string why_not_shared(const DistributedOptimizerOptions& options, torch::optim::Optimizer& optimizer,
                           const TrainedParameters& dense, Communicator& ranks, const SharingFacts& facts) {
  if (options.shard == Shard::off) return "sharding is off";
  auto reason = find_reason(options, optimizer, dense, ranks, facts);
  if (options.shard == Shard::required && !reason.empty())
    throw UserError(fmt::format(
        "parameters and optimizer state cannot be divided by the ranks of a node: {}; use shard auto",
        reason));
  return reason;
}

}  // namespace farandole
