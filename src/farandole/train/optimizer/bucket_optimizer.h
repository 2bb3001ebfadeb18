// Updates the parameters of whole buckets.
// Thread safety: call from the training thread only.
//
// Parameters, and the state that SGD, Adam and AdamW keep for them, lie as the gradients do: one flat tensor
// a bucket, of which the parameters and the tensors in torch::optim's own state are views. One call of a
// fused kernel then updates a bucket, or a run of its slots where the slots differ in options, in the number
// of their updates, or have no gradient. torch::optim remains the owner of options, counters and state: what
// users, broadcasts and checkpoints read there is true, and what they replace there is taken over
// at the next update.
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
  // `optimizer` and `plan` outlive this. The parameters keep their values, and the flat memory,
  // when this goes.
  BucketOptimizer(torch::optim::Optimizer& optimizer, const BucketPlan& plan,
                  std::vector<torch::Tensor> parameters, std::vector<torch::Tensor> gradients);

  // Multiplies all gradients of the bucket by `factor`. Then updates the parameters of the bucket that a
  // fused kernel can update and whose grad() is defined; grad() must be the view of the bucket.
  void update(std::size_t bucket, double factor = 1);
  // Then the optimizer's own step(), which is to leave updated parameters alone,
  // for all that update() could not.
  void update_others();
  // Returns all parameters as one tensor per bucket, for writing.
  std::vector<torch::Tensor>& writable_parameters();

 private:
  struct Slot {
    std::optional<std::size_t> group{};  // Group in the optimizer; no value: not for a fused kernel.
    std::vector<torch::Tensor> state;    // Views of the flat state.
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
  // Indexed by tensor; places_ are views of the flat parameters.
  std::vector<torch::Tensor> parameters_, places_;
  std::vector<torch::Tensor> gradients_;  // Indexed by bucket; flat, as are the next two.
  std::vector<torch::Tensor> flat_parameters_;
  // Indexed by bucket and field; created when first needed.
  std::vector<std::vector<torch::Tensor>> flat_state_;
  std::vector<Slot> slots_;    // Indexed by tensor.
  std::size_t in_groups_ = 0;  // Number of parameters of all groups at the last check.
  bool others_ = false;        // Some parameters are not for a fused kernel.
};

}  // namespace farandole
