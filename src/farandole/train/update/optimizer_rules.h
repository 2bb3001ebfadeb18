// What fused kernels know of an optimizer of torch::optim: the rule of each parameter, which comes from the
// options of its group, and the tensors of its state.
// Thread safety: call from the training thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "farandole/comm/kernels/update.h"

namespace farandole {

// By the address of the parameter, as optimizers of torch::optim keep it.
using OptimizerStates = std::remove_reference_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;
using StateFields = std::array<torch::Tensor, update_fields>;  // undefined where a rule has no such field
using StateTensors = std::array<torch::Tensor*, update_fields>;

class FusedRule;

class OptimizerRules {
 public:
  // `parameters` are in the order of the plan's tensors. `has_sparse`: the optimizer also has parameters with
  // sparse gradients. `optimizer` must outlive this object.
  OptimizerRules(torch::optim::Optimizer& optimizer, std::vector<torch::Tensor> parameters, bool has_sparse);
  ~OptimizerRules();

  torch::optim::Optimizer& optimizer() const { return optimizer_; }
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  // Fused kernels have the rule of this optimizer.
  bool are_fused() const { return rule_ != nullptr; }

  // Call this when a step begins to update, because programs add groups.
  void follow_groups();
  // The group in the optimizer; no value if a fused kernel cannot update the parameter.
  std::optional<std::size_t> group_of(std::size_t tensor) const { return groups_[tensor]; }
  UpdateRule rule_of(std::size_t group) const;

  // Makes `places` the tensors of the parameter's state in `states`; they have its shape, or are undefined if
  // the rule does not use the field. They get the current values of the state, or zeros if there is none.
  // Counts one update and returns its number, or 1 if the rule does not depend on the number. `zeroed`:
  // places that no tensor has used are zero.
  std::int64_t adopt_state(OptimizerStates& states, std::size_t tensor, const StateFields& places,
                           bool zeroed) const;
  StateTensors tensors_of(torch::optim::OptimizerParamState& state) const;

  // Some parameters are not for a fused kernel.
  bool has_others() const { return others_; }
  // Updates them with the optimizer's own step().
  void update_others();

 private:
  void find_groups();

  torch::optim::Optimizer& optimizer_;
  const std::vector<torch::Tensor> parameters_;
  const bool has_sparse_;
  const std::unique_ptr<FusedRule> rule_;
  std::vector<std::optional<std::size_t>> groups_;  // Indexed by tensor.
  std::size_t in_groups_ = 0;                       // Number of parameters of all groups at the last check.
  bool others_ = false;
};

}  // namespace farandole
