#include "farandole/train/optimizer/bucket_optimizer.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim.h>
#include <torch/utils.h>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "farandole/comm/kernels/update.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {

using torch::Tensor;

// Options and state of torch::optim's optimizers, as kernels use them.
class FusedRule {
 public:
  using Options = torch::optim::OptimizerOptions;

  virtual ~FusedRule() = default;
  virtual UpdateRule of(const Options& options) const = 0;
  // Makes `places` the tensors of the parameter's state; they have its shape, or are undefined if the rule
  // does not use the field. They get the current values of the state, or zeros if there is none. Counts one
  // update and returns its number, or 1 if the rule does not depend on the number.
  virtual std::int64_t adopt_state(const Tensor& parameter, const StateFields& places) = 0;
};

namespace {

// Parts of equal length of a bucket's parameters, gradients and state.
struct FlatRun {
  Tensor parameters;
  Tensor gradients;
  StateFields state;
};

// Returns the state of the parameter; creates it if there is none.
template <class State>
State& state_of(torch::optim::Optimizer& optimizer, const Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (state == nullptr) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

template <class Set>
void move_field(const Tensor& now, const Tensor& place, Set set) {
  if (!place.defined() || same_place(now, place)) return;
  if (now.defined())
    place.copy_(now);
  else
    place.zero_();
  set(place);
}

template <class State>
std::int64_t count_update(State& state) {
  state.step(state.step() + 1);
  return state.step();
}

class FusedSgd final : public FusedRule {
 public:
  explicit FusedSgd(torch::optim::SGD& optimizer) : optimizer_(optimizer) {}

  UpdateRule of(const Options& options) const override {
    const auto& o = static_cast<const torch::optim::SGDOptions&>(options);
    return {.kind = UpdateRule::Kind::sgd,
            .lr = o.lr(),
            .weight_decay = o.weight_decay(),
            .momentum = o.momentum(),
            .dampening = o.dampening(),
            .nesterov = o.nesterov()};
  }

  std::int64_t adopt_state(const Tensor& parameter, const StateFields& places) override {
    if (!places[0].defined()) return 1;
    auto& state = state_of<torch::optim::SGDParamState>(optimizer_, parameter);
    const bool first = !state.momentum_buffer().defined();
    move_field(state.momentum_buffer(), places[0], [&](const Tensor& t) { state.momentum_buffer(t); });
    return first ? 1 : 2;
  }

 private:
  torch::optim::SGD& optimizer_;
};

// Adam and AdamW differ in the types of their options and state, and in weight decay.
template <class Optimizer, class AdamOptions, class State, UpdateRule::Kind kind>
class FusedAdam final : public FusedRule {
 public:
  explicit FusedAdam(Optimizer& optimizer) : optimizer_(optimizer) {}

  UpdateRule of(const Options& options) const override {
    const auto& o = static_cast<const AdamOptions&>(options);
    const auto [beta1, beta2] = o.betas();
    return {.kind = kind,
            .lr = o.lr(),
            .weight_decay = o.weight_decay(),
            .beta1 = beta1,
            .beta2 = beta2,
            .amsgrad = o.amsgrad(),
            .eps = o.eps()};
  }

  std::int64_t adopt_state(const Tensor& parameter, const StateFields& places) override {
    auto& state = state_of<State>(optimizer_, parameter);
    move_field(state.exp_avg(), places[0], [&](const Tensor& t) { state.exp_avg(t); });
    move_field(state.exp_avg_sq(), places[1], [&](const Tensor& t) { state.exp_avg_sq(t); });
    move_field(state.max_exp_avg_sq(), places[2], [&](const Tensor& t) { state.max_exp_avg_sq(t); });
    return count_update(state);
  }

 private:
  Optimizer& optimizer_;
};

using AdamRule = FusedAdam<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState,
                           UpdateRule::Kind::adam>;
using AdamWRule = FusedAdam<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState,
                            UpdateRule::Kind::adamw>;

class FusedRmsprop final : public FusedRule {
 public:
  explicit FusedRmsprop(torch::optim::RMSprop& optimizer) : optimizer_(optimizer) {}

  UpdateRule of(const Options& options) const override {
    const auto& o = static_cast<const torch::optim::RMSpropOptions&>(options);
    return {.kind = UpdateRule::Kind::rmsprop,
            .lr = o.lr(),
            .weight_decay = o.weight_decay(),
            .momentum = o.momentum(),
            .alpha = o.alpha(),
            .centered = o.centered(),
            .eps = o.eps()};
  }

  std::int64_t adopt_state(const Tensor& parameter, const StateFields& places) override {
    auto& state = state_of<torch::optim::RMSpropParamState>(optimizer_, parameter);
    move_field(state.square_avg(), places[0], [&](const Tensor& t) { state.square_avg(t); });
    move_field(state.momentum_buffer(), places[1], [&](const Tensor& t) { state.momentum_buffer(t); });
    move_field(state.grad_avg(), places[2], [&](const Tensor& t) { state.grad_avg(t); });
    count_update(state);
    return 1;
  }

 private:
  torch::optim::RMSprop& optimizer_;
};

// Returns nullptr if the optimizer is not exactly one of these types. `optimizer` must outlive the rule.
std::unique_ptr<FusedRule> make_fused_rule(torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  const auto& type = typeid(optimizer);
  if (type == typeid(SGD)) return std::make_unique<FusedSgd>(static_cast<SGD&>(optimizer));
  if (type == typeid(torch::optim::Adam))
    return std::make_unique<AdamRule>(static_cast<torch::optim::Adam&>(optimizer));
  if (type == typeid(torch::optim::AdamW))
    return std::make_unique<AdamWRule>(static_cast<torch::optim::AdamW&>(optimizer));
  if (type == typeid(RMSprop)) return std::make_unique<FusedRmsprop>(static_cast<RMSprop&>(optimizer));
  return nullptr;
}

// Whether zeros in parameter, gradient and state stay zeros. Then padding may also be updated.
bool keeps_zeros(const UpdateRule& rule) {
  return rule.kind == UpdateRule::Kind::sgd || rule.eps > 0;
}

// Multiplies the gradients by `factor` and stores them if it is not 1. Uses LibTorch's threads.
void update_on_host(const FlatRun& run, const UpdateRule& rule, std::int64_t step, double factor) {
  constexpr std::int64_t unit = 16;  // elements of a cache line, which belong to one thread
  const std::int64_t count = run.parameters.numel();
  const auto update_part = [&](std::int64_t begin, std::int64_t end) {
    begin *= unit;
    end = std::min(end * unit, count);
    const auto at = [&](const Tensor& tensor) -> void* {
      if (!tensor.defined()) return nullptr;
      return static_cast<std::byte*>(tensor.data_ptr()) + begin * tensor.element_size();
    };
    void* const gradient = at(run.gradients);
    const void* const only = gradient;
    update(rule, {.dtype = dtype_of(run.parameters),
                  .count = static_cast<std::size_t>(end - begin),
                  .parameter = at(run.parameters),
                  .state = {at(run.state[0]), at(run.state[1]), at(run.state[2])},
                  .gradients = {&only, 1},
                  .gradient_scale = factor,
                  .reduced = factor == 1 ? nullptr : gradient,
                  .step = step});
  };
  at::parallel_for(0, (count + unit - 1) / unit, at::internal::GRAIN_SIZE / unit, update_part);
}

double number_of(const GradientFactor& factor) {
  const auto* const known = std::get_if<double>(&factor);
  return known != nullptr ? *known : std::get<Tensor>(factor).item<double>();
}

// The kernels of a device divide gradients by a float32.
std::optional<Tensor> divisor_of(const GradientFactor& factor, const Tensor& gradients) {
  const auto* const known = std::get_if<double>(&factor);
  if (known == nullptr) return std::get<Tensor>(factor).reciprocal().to(torch::kFloat32);
  if (*known == 1) return {};
  return torch::full({}, 1 / *known, gradients.options());
}

// With LibTorch's kernels, which have no RMSprop. `divisor` and `leave_out` are scalars of float32 on the
// device. Gradients are divided by the first and stored; nothing is changed if the second is 1.
void update_on_device(const FlatRun& run, const UpdateRule& rule, std::int64_t step,
                      const std::optional<Tensor>& divisor, const std::optional<Tensor>& leave_out) {
  if (rule.kind == UpdateRule::Kind::sgd) {
    std::vector<Tensor> momentum;
    if (rule.uses(0)) momentum.push_back(run.state[0]);
    at::_fused_sgd_({run.parameters}, {run.gradients}, momentum, rule.weight_decay, rule.momentum, rule.lr,
                    rule.dampening, rule.nesterov, /*maximize=*/false, /*is_first_step=*/step == 1, divisor,
                    leave_out);
    return;
  }
  const auto steps =
      torch::full({}, static_cast<double>(step), run.parameters.options().dtype(torch::kFloat32));
  std::vector<Tensor> largest;
  if (rule.amsgrad) largest.push_back(run.state[2]);
  const auto kernel =
      rule.kind == UpdateRule::Kind::adam ? &at::_ops::_fused_adam_::call : &at::_ops::_fused_adamw_::call;
  kernel({run.parameters}, {run.gradients}, {run.state[0]}, {run.state[1]}, largest, {steps}, rule.lr,
         rule.beta1, rule.beta2, rule.weight_decay, rule.eps, rule.amsgrad, /*maximize=*/false, divisor,
         leave_out);
}

}  // namespace

void multiply(Tensor& gradients, const GradientFactor& factor) {
  const torch::NoGradGuard no_grad;
  const auto* const there = std::get_if<Tensor>(&factor);
  if (there == nullptr && std::get<double>(factor) == 1) return;
  const auto multiplied = [&](Tensor values) {
    return there != nullptr ? values.mul_(*there) : values.mul_(std::get<double>(factor));
  };
  // LibTorch rounds the factor to the type of the gradients. float16 would round 1e-8 to 0.
  if (gradients.element_size() == 2)
    gradients.copy_(multiplied(gradients.to(torch::kFloat32)));
  else
    multiplied(gradients);
}

// Neighbouring slots that one call updates: elements [first, end) of the flat tensors.
struct BucketOptimizer::Run {
  std::size_t group;
  std::int64_t step;
  std::size_t first, end;
  std::size_t next_slot;
};

BucketOptimizer::BucketOptimizer(torch::optim::Optimizer& optimizer, const BucketPlan& plan,
                                 std::vector<Tensor> parameters, std::vector<Tensor> gradients)
    : optimizer_(optimizer),
      plan_(plan),
      rule_(make_fused_rule(optimizer)),
      parameters_(std::move(parameters)),
      gradients_(std::move(gradients)) {
  places_.resize(parameters_.size());
  slots_.resize(parameters_.size());
  flat_state_.resize(plan_.buckets.size());
  for (const auto& bucket : plan_.buckets) {
    flat_parameters_.push_back(flat_tensor(bucket, parameters_[bucket.slots.front().tensor].device()));
    for (const auto& slot : bucket.slots) {
      places_[slot.tensor] = slot_view(flat_parameters_.back(), slot, parameters_[slot.tensor]);
      move_into_place(slot.tensor);
    }
  }
  find_groups();
}

BucketOptimizer::~BucketOptimizer() = default;

// Modules replace the memory of a parameter when they are loaded or converted.
void BucketOptimizer::move_into_place(std::size_t tensor) {
  auto& parameter = parameters_[tensor];
  if (same_place(parameter, places_[tensor])) return;
  const torch::NoGradGuard no_grad;
  places_[tensor].copy_(parameter);
  parameter.set_data(places_[tensor]);
}

void BucketOptimizer::find_groups() {
  std::unordered_map<const void*, std::size_t> group_of;
  in_groups_ = 0;
  const auto& groups = optimizer_.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    in_groups_ += groups[g].params().size();
    for (const auto& parameter : groups[g].params()) group_of[parameter.unsafeGetTensorImpl()] = g;
  }
  std::size_t fused = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    slots_[i].group.reset();
    const auto found = group_of.find(parameters_[i].unsafeGetTensorImpl());
    const auto type = parameters_[i].scalar_type();
    if (rule_ == nullptr || found == group_of.end() || (type != torch::kFloat32 && type != torch::kFloat64))
      continue;
    if (parameters_[i].is_cuda() && rule_of(found->second).kind == UpdateRule::Kind::rmsprop) continue;
    slots_[i].group = found->second;
    ++fused;
  }
  others_ = fused < in_groups_;
}

UpdateRule BucketOptimizer::rule_of(std::size_t group) const {
  const auto& found = std::as_const(optimizer_).param_groups()[group];
  return rule_->of(found.has_options() ? found.options() : std::as_const(optimizer_).defaults());
}

StateFields BucketOptimizer::places(std::size_t bucket, const BucketSlot& slot, const UpdateRule& rule) {
  StateFields result;
  for (std::size_t f = 0; f < update_fields; ++f) {
    if (!rule.uses(f)) continue;
    const auto& parameter = places_[slot.tensor];
    auto& flat = flat_state_[bucket][f];
    if (!flat.defined()) flat = flat_tensor(plan_.buckets[bucket], parameter.device());
    auto& place = slots_[slot.tensor].state[f];
    if (!place.defined()) place = slot_view(flat, slot, parameter);
    result[f] = place;
  }
  return result;
}

std::vector<BucketOptimizer::Run> BucketOptimizer::runs(std::size_t b) {
  std::vector<Run> result;
  const auto& bucket = plan_.buckets[b];
  for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
    const auto& slot = bucket.slots[s];
    const auto& parameter = parameters_[slot.tensor];
    const auto group = slots_[slot.tensor].group;
    if (!group || !parameter.grad().defined()) continue;
    move_into_place(slot.tensor);
    const auto rule = rule_of(*group);
    const auto step = rule_->adopt_state(parameter, places(b, slot, rule));
    torch::autograd::impl::bump_version(parameter);
    const bool padding = keeps_zeros(rule);
    const std::size_t next = s + 1 < bucket.slots.size() ? bucket.slots[s + 1].offset : bucket.payload;
    const Run run{*group, step, slot.offset, padding ? next : slot.offset + slot.count, s + 1};
    const bool joins = padding && !result.empty() && result.back().next_slot == s &&
                       result.back().group == run.group && result.back().step == step;
    if (!joins) {
      result.push_back(run);
      continue;
    }
    result.back().end = run.end;
    result.back().next_slot = run.next_slot;
  }
  return result;
}

void BucketOptimizer::update(std::size_t b, const GradientFactor& factor,
                             const std::optional<Tensor>& leave_out) {
  const torch::NoGradGuard no_grad;
  std::size_t in_groups = 0;
  for (const auto& group : optimizer_.param_groups()) in_groups += group.params().size();
  if (in_groups != in_groups_) find_groups();
  // The kernels store the product. This saves one pass over the memory if they update all of the bucket.
  const bool on_device = gradients_[b].is_cuda();
  bool all = !on_device || plan_.buckets[b].dtype == DType::float32;
  for (const auto& slot : plan_.buckets[b].slots) all = all && slots_[slot.tensor].group;
  const GradientFactor left = all ? factor : GradientFactor(1.0);
  if (!all) multiply(gradients_[b], factor);
  if (rule_ == nullptr) return;
  const auto divisor = on_device ? divisor_of(left, gradients_[b]) : std::nullopt;
  const double on_host = on_device ? 1 : number_of(left);
  const bool left_out = !on_device && leave_out && leave_out->item<float>() == 1;
  for (const auto& run : runs(b)) {
    if (run.first == run.end || left_out) continue;  // A tensor may have no elements.
    const auto piece = [&](const Tensor& flat) {
      if (!flat.defined()) return flat;
      return flat.narrow(0, static_cast<std::int64_t>(run.first),
                         static_cast<std::int64_t>(run.end - run.first));
    };
    FlatRun flat{piece(flat_parameters_[b]), piece(gradients_[b]), {}};
    for (std::size_t f = 0; f < update_fields; ++f) flat.state[f] = piece(flat_state_[b][f]);
    if (on_device)
      update_on_device(flat, rule_of(run.group), run.step, divisor, leave_out);
    else
      update_on_host(flat, rule_of(run.group), run.step, on_host);
  }
}

void BucketOptimizer::update_others() {
  if (!others_) return;
  std::vector<Tensor> hidden(parameters_.size());
  const auto swap = [&] {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (slots_[i].group) std::swap(parameters_[i].mutable_grad(), hidden[i]);
  };
  swap();
  optimizer_.step();
  swap();
}

std::vector<Tensor>& BucketOptimizer::writable_parameters() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    move_into_place(i);
    torch::autograd::impl::bump_version(parameters_[i]);
  }
  return flat_parameters_;
}

}  // namespace farandole
