// Decides which buckets the next step uses: first those of the options; after the first step, in the order in
// which rank 0's gradients came, so that the first buckets are full as early as possible; then, if wanted, of
// the size with which steps are fastest. Used by the training thread.
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
  // `ranks` outlives this.
  BucketPlanner(Communicator& ranks, std::vector<TensorSpec> tensors,
                const DistributedOptimizerOptions& options);

  BucketPlan plan() const { return plan_buckets(tensors_, sizes_, order_); }
  // From now on, buckets are not planned by the order in which gradients come.
  void keep_order() { ordered_ = true; }
  // Between steps; `first_order` as GradientReducer gives it. Returns whether plan() has changed. Collective.
  bool reconsider(std::span<const std::size_t> first_order);

  // At the end of each step; all ranks take the same steps. Collective.
  void step_ended();
  // The time until the next step's end does not count.
  void skip_time() { step_ended_ns_ = 0; }
  std::optional<TunedPlan> tuned() const;

 private:
  Communicator& ranks_;
  const std::vector<TensorSpec> tensors_;
  const bool tune_;
  BucketOptions sizes_;
  std::vector<std::size_t> order_;  // in which gradients are expected; empty: not yet known
  bool ordered_;
  std::optional<Autotuner> tuner_;
  std::int64_t step_ended_ns_ = 0;
};

}  // namespace farandole
