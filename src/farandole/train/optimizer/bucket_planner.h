// Decides which buckets the next step uses. At first they follow the options. After the first step they
// follow the order in which rank 0's gradients became ready, so that the first buckets are full early. If
// tuning is enabled, the fastest size is used afterwards.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"
#include "farandole/fusion/autotuner.h"
#include "farandole/train/distributed_optimizer_options.h"

namespace farandole {

class BucketPlanner {
 public:
  // `ranks` must outlive this object.
  BucketPlanner(Communicator& ranks, std::vector<TensorSpec> tensors,
                const DistributedOptimizerOptions& options);

  BucketPlan plan() const { return plan_buckets(tensors_, sizes_, order_); }
  // From now on, buckets are not planned in the order of the gradients.
  void keep_order() { ordered_ = true; }
  // Call this between steps. `first_order` comes from GradientReducer. Returns whether plan() has changed.
  // Collective: every rank of the group must call this in the same order.
  bool reconsider(std::span<const std::size_t> first_order);

  // Call this at the end of each step.
  // Collective: every rank of the group must call this in the same order.
  void step_ended();
  // The time until the end of the next step is not measured.
  void skip_time() { step_ended_ns_ = 0; }
  std::optional<TunedPlan> tuned() const;

 private:
  Communicator& ranks_;
  const std::vector<TensorSpec> tensors_;
  const bool tune_;
  BucketOptions sizes_;
  std::vector<std::size_t> order_;  // Expected order of the gradients; empty: unknown.
  bool ordered_;
  std::optional<Autotuner> tuner_;
  std::int64_t step_ended_ns_ = 0;
};

}  // namespace farandole
