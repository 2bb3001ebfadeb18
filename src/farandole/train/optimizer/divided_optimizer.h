// Updates only this rank's part of each bucket on a device. Then the ranks gather the parameters.
// Thread safety: call from the training thread only.
//
// An optimizer of the same kind and with the same options as the program's has this rank's parts of
// parameters, gradients and state, as tensors with one dimension. So each rank needs memory for its part of
// the state only. The program's optimizer has no state meanwhile. If the program puts state there, as it does
// when it loads a checkpoint, the next update takes it over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <utility>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/fusion/gpu_buckets.h"
#include "farandole/train/distributed_optimizer_options.h"
#include "farandole/train/optimizer/bucket_optimizer.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {

class DividedOptimizer {
 public:
  // `parameters` are in the order of the plan's tensors, and `gradients` are indexed by bucket. `optimizer`,
  // which is an SGD, Adam, AdamW or RMSprop, and `device` must outlive this object. The state of `former`,
  // which has other buckets of the same parameters, becomes that of this object.
  // Collective: every rank must call this in the same order.
  DividedOptimizer(torch::optim::Optimizer& optimizer, BucketDevice& device, const BucketPlan& plan,
                   std::vector<torch::Tensor> parameters, const std::vector<torch::Tensor>& gradients,
                   DividedOptimizer* former = nullptr);
  // State that was not gathered stays in the program's optimizer in parts. A later
  // DividedOptimizer refuses these.
  ~DividedOptimizer();

  // As BucketOptimizer::update(), for this rank's part. Then the parameters of the bucket are gathered, which
  // the current stream does not wait for. In each step, bucket 0 comes first.
  // Throws: UserError if the program's optimizer has state that does not have its parameter's shape.
  // Collective: every rank must call this in the same order, as the functions below.
  void update(std::size_t bucket, const GradientFactor& factor,
              const std::optional<torch::Tensor>& leave_out);
  // Lets work that is queued on the current stream from now on wait for the parameters.
  void hold() { device_.hold(); }
  bool has_others() const { return updates_->has_others(); }
  // As BucketOptimizer::update_others().
  void update_others();

  // Calls `visit` for each tensor of the state and its field; tensors are whole, and counters are int64
  // scalars. Needs memory for one bucket.
  using Visit = std::function<void(std::size_t tensor, const std::string& field, const torch::Tensor& value)>;
  void visit_state(const Visit& visit);
  // Gives the program's optimizer the whole state, until the next update.
  void gather_state();
  void forget_state() { own_->state().clear(); }
  Sharding sharding() const;  // Also before the first step.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }

 private:
  void follow_options();
  void take_over_state();
  torch::Tensor part_of(const torch::Tensor& whole, std::size_t tensor) const;
  NamedTensors own_state() const;
  void gather(std::size_t bucket);

  torch::optim::Optimizer& optimizer_;
  BucketDevice& device_;
  const BucketPlan plan_;
  BucketPlan plan_of_parts_;
  // Indexed by tensor. places_ are views of the flat parameters; parts_ and their gradients are of this rank.
  std::vector<torch::Tensor> parameters_, places_, parts_, gradients_;
  std::vector<std::pair<std::size_t, std::size_t>> slots_;  // Bucket and slot, indexed by tensor.
  std::vector<torch::Tensor> flat_parameters_;  // Indexed by bucket, with room for the parts of all ranks.
  std::unique_ptr<torch::optim::Optimizer> own_;
  std::optional<BucketOptimizer> updates_;
};

}  // namespace farandole
