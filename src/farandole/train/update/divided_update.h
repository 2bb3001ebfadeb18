// Updates only this rank's part of each bucket on a device. Then the ranks gather the parameters.
// Thread safety: call from the training thread only.
//
// Each rank needs memory for its part of the state only, which is kept here. The program's optimizer has no
// state meanwhile. If the program puts state there, as it does when it loads a checkpoint, the next update
// takes it over.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/fusion/gpu_buckets.h"
#include "farandole/train/update/parameter_update.h"

namespace farandole {

class DividedUpdate final : public ParameterUpdate {
 public:
  // `gradients` are indexed by bucket. A fused kernel must be able to update all parameters. `rules` and
  // `device` must outlive this object. The state of `former`, which may be null and has other buckets of the
  // same parameters, becomes that of this object.
  // Collective: every rank must call this in the same order.
  DividedUpdate(OptimizerRules& rules, BucketDevice& device, const BucketPlan& plan,
                std::vector<torch::Tensor> gradients, DividedUpdate* former);
  // State that was not gathered stays in the program's optimizer in parts. A later
  // DividedUpdate refuses these.
  ~DividedUpdate() override;

  // Throws: UserError if the program's optimizer has state that does not have its parameter's shape.
  void begin() override { take_over_state(); }
  // The parameters of the bucket are gathered, which the current stream does not wait for before end().
  void update(std::size_t bucket, const BucketGradients& gradients,
              const std::optional<torch::Tensor>& leave_out) override;
  void end() override { device_.hold(); }
  void visit_state(const VisitOptimizerState& visit) override;
  void gather_state() override;
  Sharding sharding() const override;

 private:
  using ParamState = torch::optim::OptimizerParamState;
  static FlatBuckets::Memory room_for_parts(OptimizerRules& rules, BucketDevice& device,
                                            const BucketPlan& plan, std::vector<torch::Tensor> gradients);
  void take_over_state();
  void adopt(std::size_t bucket, const BucketSlot& slot, std::unique_ptr<ParamState> whole);
  torch::Tensor part_of(const torch::Tensor& whole, std::size_t bucket, const BucketSlot& slot) const;
  void gather(const std::string& name, std::size_t bucket, const torch::Tensor& flat);
  ParamState* state_of(const BucketSlot& slot) const;  // Null if it has none.

  BucketDevice& device_;
  OptimizerStates own_;  // With tensors of one dimension, which are this rank's parts.
};

}  // namespace farandole
