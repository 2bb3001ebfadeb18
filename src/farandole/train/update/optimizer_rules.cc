#include "farandole/train/update/optimizer_rules.h"

#include <algorithm>
#include <torch/optim.h>
#include <typeinfo>
#include <unordered_map>

#include "farandole/train/tensor_bytes.h"

namespace farandole {

using torch::Tensor;

class FusedRule {
 public:
  virtual ~FusedRule() = default;
  virtual UpdateRule from(const torch::optim::OptimizerOptions& options) const = 0;
  virtual std::unique_ptr<torch::optim::OptimizerParamState> make_state() const = 0;
  virtual StateTensors tensors_of(torch::optim::OptimizerParamState& state) const = 0;
  // `first`: the state has no tensors yet. Returns the number of the update, or 1 if the rule does not
  // depend on it.
  virtual std::int64_t count(torch::optim::OptimizerParamState& state, bool first) const = 0;
};

namespace {

UpdateRule rule_from(const torch::optim::SGDOptions& o) {
  return {.kind = UpdateRule::Kind::sgd,
          .lr = o.lr(),
          .weight_decay = o.weight_decay(),
          .momentum = o.momentum(),
          .dampening = o.dampening(),
          .nesterov = o.nesterov()};
}
template <class OfAdam>
UpdateRule rule_of_adam(const OfAdam& o, UpdateRule::Kind kind) {
  const auto [beta1, beta2] = o.betas();
  return {.kind = kind,
          .lr = o.lr(),
          .weight_decay = o.weight_decay(),
          .beta1 = beta1,
          .beta2 = beta2,
          .amsgrad = o.amsgrad(),
          .eps = o.eps()};
}
UpdateRule rule_from(const torch::optim::AdamOptions& o) {
  return rule_of_adam(o, UpdateRule::Kind::adam);
}
UpdateRule rule_from(const torch::optim::AdamWOptions& o) {
  return rule_of_adam(o, UpdateRule::Kind::adamw);
}
UpdateRule rule_from(const torch::optim::RMSpropOptions& o) {
  return {.kind = UpdateRule::Kind::rmsprop,
          .lr = o.lr(),
          .weight_decay = o.weight_decay(),
          .momentum = o.momentum(),
          .alpha = o.alpha(),
          .centered = o.centered(),
          .eps = o.eps()};
}

StateTensors tensors_in(torch::optim::SGDParamState& state) {
  return {&state.momentum_buffer()};
}
StateTensors tensors_in(torch::optim::RMSpropParamState& state) {
  return {&state.square_avg(), &state.momentum_buffer(), &state.grad_avg()};
}
template <class OfAdam>
StateTensors tensors_in(OfAdam& state) {
  return {&state.exp_avg(), &state.exp_avg_sq(), &state.max_exp_avg_sq()};
}

std::int64_t count_update(torch::optim::SGDParamState&, bool first) {
  return first ? 1 : 2;
}
std::int64_t count_update(torch::optim::RMSpropParamState& state, bool) {
  state.step(state.step() + 1);
  return 1;
}
template <class OfAdam>
std::int64_t count_update(OfAdam& state, bool) {
  state.step(state.step() + 1);
  return state.step();
}

template <class Options, class State>
class RuleOf final : public FusedRule {
  using ParamState = torch::optim::OptimizerParamState;

  UpdateRule from(const torch::optim::OptimizerOptions& options) const override {
    return rule_from(static_cast<const Options&>(options));
  }
  std::unique_ptr<ParamState> make_state() const override { return std::make_unique<State>(); }
  StateTensors tensors_of(ParamState& state) const override { return tensors_in(static_cast<State&>(state)); }
  std::int64_t count(ParamState& state, bool first) const override {
    return count_update(static_cast<State&>(state), first);
  }
};

// Returns nullptr if the optimizer is not exactly one of these types.
std::unique_ptr<FusedRule> make_fused_rule(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  const auto& type = typeid(optimizer);
  if (type == typeid(SGD)) return std::make_unique<RuleOf<SGDOptions, SGDParamState>>();
  if (type == typeid(torch::optim::Adam)) return std::make_unique<RuleOf<AdamOptions, AdamParamState>>();
  if (type == typeid(torch::optim::AdamW)) return std::make_unique<RuleOf<AdamWOptions, AdamWParamState>>();
  if (type == typeid(RMSprop)) return std::make_unique<RuleOf<RMSpropOptions, RMSpropParamState>>();
  return nullptr;
}

}  // namespace

OptimizerRules::OptimizerRules(torch::optim::Optimizer& optimizer, std::vector<Tensor> parameters,
                               bool has_sparse)
    : optimizer_(optimizer),
      parameters_(std::move(parameters)),
      has_sparse_(has_sparse),
      rule_(make_fused_rule(optimizer)) {
  find_groups();
}

OptimizerRules::~OptimizerRules() = default;

void OptimizerRules::find_groups() {
  std::unordered_map<const void*, std::size_t> group_of;
  in_groups_ = 0;
  const auto& groups = optimizer_.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    in_groups_ += groups[g].params().size();
    for (const auto& parameter : groups[g].params()) group_of[parameter.unsafeGetTensorImpl()] = g;
  }
  groups_.assign(parameters_.size(), std::nullopt);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto found = group_of.find(parameters_[i].unsafeGetTensorImpl());
    const auto type = parameters_[i].scalar_type();
    if (rule_ != nullptr && found != group_of.end() && (type == torch::kFloat32 || type == torch::kFloat64))
      groups_[i] = found->second;
  }
  others_ = has_sparse_ || std::ranges::any_of(groups_, [](const auto& group) { return !group; });
}

void OptimizerRules::follow_groups() {
  std::size_t in_groups = 0;
  for (const auto& group : optimizer_.param_groups()) in_groups += group.params().size();
  if (in_groups != in_groups_) find_groups();
}

UpdateRule OptimizerRules::rule_of(std::size_t group) const {
  const auto& optimizer = std::as_const(optimizer_);
  const auto& found = optimizer.param_groups()[group];
  return rule_->from(found.has_options() ? found.options() : optimizer.defaults());
}

std::int64_t OptimizerRules::adopt_state(OptimizerStates& states, std::size_t tensor,
                                         const StateFields& places, bool zeroed) const {
  if (std::ranges::none_of(places, [](const Tensor& place) { return place.defined(); })) return 1;
  auto& state = states[parameters_[tensor].unsafeGetTensorImpl()];
  if (state == nullptr) state = rule_->make_state();
  const auto tensors = rule_->tensors_of(*state);
  const bool first = !tensors[0]->defined();
  for (std::size_t f = 0; f < update_fields; ++f) {
    if (!places[f].defined() || same_place(*tensors[f], places[f])) continue;
    if (tensors[f]->defined())
      places[f].copy_(*tensors[f]);
    else if (!zeroed)
      places[f].zero_();
    *tensors[f] = places[f];
  }
  return rule_->count(*state, first);
}

StateTensors OptimizerRules::tensors_of(torch::optim::OptimizerParamState& state) const {
  return rule_->tensors_of(state);
}

// The step must not change parameters that are already updated, so their gradients are hidden.
void OptimizerRules::update_others() {
  if (!others_) return;
  std::vector<Tensor> hidden(parameters_.size());
  const auto swap = [&] {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (groups_[i]) std::swap(parameters_[i].mutable_grad(), hidden[i]);
  };
  swap();
  optimizer_.step();
  swap();
}

}  // namespace farandole
