#include "farandole/train/optimizer/bucket_planner.h"

#include <utility>

#include "farandole/base/clock.h"

namespace farandole {

// The first order is kept in two cases. With compression, the bits of the result depend on the plan, and a
// resumed run would make a new one. With averaged parameters, each rank's gradients have a different order.
BucketPlanner::BucketPlanner(Communicator& ranks, std::vector<TensorSpec> tensors,
                             const DistributedOptimizerOptions& options)
    : ranks_(ranks),
      tensors_(std::move(tensors)),
      tune_(options.tune),
      sizes_(options.buckets),
      ordered_(options.compression.of_ranks() || options.synchronization.of_parameters()) {}

bool BucketPlanner::reconsider(std::span<const std::size_t> first_order) {
  if (!ordered_ && !first_order.empty()) {
    ordered_ = true;
    std::vector<std::uint64_t> of_root(first_order.begin(), first_order.end());
    ranks_.broadcast("order of gradients", of_root.data(), of_root.size() * sizeof of_root[0], 0);
    order_.assign(of_root.begin(), of_root.end());
    if (tune_ && ranks_.size > 1) tuner_.emplace(bucket_sizes_to_try(tensors_, sizes_.bytes));
    return true;
  }
  if (!tuner_ || tuner_->current() == sizes_.bytes) return false;
  sizes_.bytes = tuner_->current();
  return true;
}

// The ranks communicate once per round.
void BucketPlanner::step_ended() {
  const auto before = std::exchange(step_ended_ns_, now_ns());
  if (!tuner_ || tuner_->finished() || before == 0 || sizes_.bytes != tuner_->current()) return;
  if (!tuner_->record(static_cast<double>(step_ended_ns_ - before) * 1e-6)) return;
  auto medians = tuner_->medians();
  ranks_.allreduce("medians of steps", medians.data(), medians.size(), DType::float64, ReduceOp::max);
  tuner_->decide(medians);
}

std::optional<TunedPlan> BucketPlanner::tuned() const {
  if (!tuner_ || !tuner_->finished()) return std::nullopt;
  return TunedPlan{tuner_->current(), tuner_->milliseconds(), tuner_->default_milliseconds(),
                   tuner_->steps()};
}

}  // namespace farandole
