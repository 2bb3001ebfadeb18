// Updates the parameters of whole buckets at once. Used by the training thread.
//
// Parameters, and the state that SGD, Adam and AdamW keep for them, lie as the gradients do: one flat tensor
// a bucket, of which the parameters and the tensors in torch::optim's own state are views. One call of a
// fused kernel then updates a bucket, or a run of its slots where the slots differ in options, in the number
// of their updates, or have no gradient. torch::optim remains the owner of options, counters and state: what
// users, broadcasts and checkpoints read there is true, and what they replace there is taken over at the
// next update.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <torch/torch.h>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/train/optimizer/fused_rule.h"

namespace farandole {

class BucketOptimizer {
 public:
  // `parameters` in the order of the plan's tensors; `gradients` by bucket, laid out as the bucket.
  // `optimizer` and `plan` outlive this. The parameters keep their values, and the flat memory, when this
  // goes.
  BucketOptimizer(torch::optim::Optimizer& optimizer, const BucketPlan& plan,
                  std::vector<torch::Tensor> parameters, std::vector<torch::Tensor> gradients);

  // Updates those of the bucket's parameters that this can update and whose grad(), which must be the view of
  // the bucket, is defined. Gradients are first multiplied by `factor`, all of the bucket's.
  void update(std::size_t bucket, double factor = 1);
  // Then the optimizer's own step(), which is to leave updated parameters alone, for all that update() could
  // not.
  void update_others();
  // All parameters, a tensor a bucket, for others to write to.
  std::vector<torch::Tensor>& writable_parameters();

 private:
  struct Slot {
    std::optional<std::size_t> group{};  // of the optimizer's; none: not for a fused kernel
    std::vector<torch::Tensor> state;    // its places in the flat state
  };
  struct Run;

  void find_groups();
  const torch::optim::OptimizerOptions& options_of(std::size_t group) const;
  void settle_parameter(std::size_t tensor);
  std::vector<Run> runs(std::size_t bucket);
  std::span<const torch::Tensor> places(std::size_t bucket, const BucketSlot& slot);
  std::optional<torch::Tensor> scale_for(std::size_t bucket, double factor);

  torch::optim::Optimizer& optimizer_;
  const BucketPlan& plan_;
  std::unique_ptr<FusedRule> rule_;
  std::vector<torch::Tensor> parameters_, places_;  // by tensor; the second in the flat parameters
  std::vector<torch::Tensor> gradients_;            // by bucket, flat, as are the next two
  std::vector<torch::Tensor> flat_parameters_;
  std::vector<std::vector<torch::Tensor>> flat_state_;  // by bucket and field; made when first needed
  std::vector<Slot> slots_;                             // by tensor
  std::size_t in_groups_ = 0;                           // parameters of all groups when last looked at
  bool others_ = false;                                 // some of these are not for a fused kernel
};

}  // namespace farandole
