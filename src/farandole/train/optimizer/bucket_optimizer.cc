#include "farandole/train/optimizer/bucket_optimizer.h"

#include <array>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim.h>
#include <torch/utils.h>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "farandole/train/tensor_bytes.h"

namespace farandole {

using torch::Tensor;

// Parts of equal length of a bucket's parameters, gradients and state.
struct FlatRun {
  torch::Tensor parameters;
  torch::Tensor gradients;
  std::array<torch::Tensor, 3> state;
};

// Scalars of float32, on the device of the run.
struct FusedScalars {
  std::optional<torch::Tensor> scale{};      // Gradients are divided by it and stored.
  std::optional<torch::Tensor> leave_out{};  // Nothing is changed if it is 1.
};

// Updates flat parameters as LibTorch's SGD, Adam and AdamW do, with LibTorch's fused kernels.
class FusedRule {
 public:
  using Options = torch::optim::OptimizerOptions;

  virtual ~FusedRule() = default;
  // Returns the number of state tensors per parameter that the options need: 0 to 3.
  virtual std::size_t fields(const Options& options) const = 0;
  // Returns whether zeros in parameter, gradient and state stay zeros. Then padding may also be updated.
  virtual bool keeps_zeros(const Options& options) const = 0;
  // Makes `places` (one per field, with the parameter's shape) the tensors of the parameter's state. They
  // get the current values of the state, or zeros if there is none. Counts one update and returns the
  // number of earlier updates.
  virtual std::int64_t adopt_state(const torch::Tensor& parameter, const Options& options,
                                   std::span<const torch::Tensor> places) = 0;
  // Updates `run` once; all of it has been updated `earlier` times before.
  virtual void update(const FlatRun& run, const Options& options, std::int64_t earlier,
                      const FusedScalars& scalars) const = 0;
};

namespace {

// Returns the state of the parameter; creates it if there is none.
template <class State>
State& state_of(torch::optim::Optimizer& optimizer, const Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (state == nullptr) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

template <class Set>
void move_field(const Tensor& now, const Tensor& place, Set set) {
  if (same_place(now, place)) return;
  if (now.defined())
    place.copy_(now);
  else
    place.zero_();
  set(place);
}

class FusedSgd final : public FusedRule {
 public:
  explicit FusedSgd(torch::optim::SGD& optimizer) : optimizer_(optimizer) {}

  std::size_t fields(const Options& options) const override { return of(options).momentum() != 0 ? 1 : 0; }
  bool keeps_zeros(const Options&) const override { return true; }

  std::int64_t adopt_state(const Tensor& parameter, const Options&, std::span<const Tensor> places) override {
    if (places.empty()) return 0;
    auto& state = state_of<torch::optim::SGDParamState>(optimizer_, parameter);
    const bool first = !state.momentum_buffer().defined();
    move_field(state.momentum_buffer(), places[0], [&](const Tensor& t) { state.momentum_buffer(t); });
    return first ? 0 : 1;
  }

  void update(const FlatRun& run, const Options& options, std::int64_t earlier,
              const FusedScalars& scalars) const override {
    const auto& o = of(options);
    std::vector<Tensor> momentum;
    if (o.momentum() != 0) momentum.push_back(run.state[0]);
    at::_fused_sgd_({run.parameters}, {run.gradients}, momentum, o.weight_decay(), o.momentum(), o.lr(),
                    o.dampening(), o.nesterov(), /*maximize=*/false, /*is_first_step=*/earlier == 0,
                    scalars.scale, scalars.leave_out);
  }

 private:
  static const torch::optim::SGDOptions& of(const Options& options) {
    return static_cast<const torch::optim::SGDOptions&>(options);
  }
  torch::optim::SGD& optimizer_;
};

// Adam and AdamW differ in the types of their options and state, and in weight decay.
template <class Optimizer, class AdamOptions, class State, auto kernel>
class FusedAdam final : public FusedRule {
 public:
  explicit FusedAdam(Optimizer& optimizer) : optimizer_(optimizer) {}

  std::size_t fields(const Options& options) const override { return of(options).amsgrad() ? 3 : 2; }
  bool keeps_zeros(const Options& options) const override { return of(options).eps() > 0; }

  std::int64_t adopt_state(const Tensor& parameter, const Options&, std::span<const Tensor> places) override {
    auto& state = state_of<State>(optimizer_, parameter);
    move_field(state.exp_avg(), places[0], [&](const Tensor& t) { state.exp_avg(t); });
    move_field(state.exp_avg_sq(), places[1], [&](const Tensor& t) { state.exp_avg_sq(t); });
    if (places.size() > 2)
      move_field(state.max_exp_avg_sq(), places[2], [&](const Tensor& t) { state.max_exp_avg_sq(t); });
    const auto earlier = state.step();
    state.step(earlier + 1);
    return earlier;
  }

  void update(const FlatRun& run, const Options& options, std::int64_t earlier,
              const FusedScalars& scalars) const override {
    const auto& o = of(options);
    const auto [beta1, beta2] = o.betas();
    // The kernels of CUDA read a float32.
    const auto type = run.parameters.is_cuda() ? torch::kFloat32 : torch::kFloat64;
    const auto step = torch::full({}, static_cast<double>(earlier + 1), run.parameters.options().dtype(type));
    std::vector<Tensor> largest;
    if (o.amsgrad()) largest.push_back(run.state[2]);
    kernel({run.parameters}, {run.gradients}, {run.state[0]}, {run.state[1]}, largest, {step}, o.lr(), beta1,
           beta2, o.weight_decay(), o.eps(), o.amsgrad(), /*maximize=*/false, scalars.scale,
           scalars.leave_out);
  }

 private:
  static const AdamOptions& of(const Options& options) { return static_cast<const AdamOptions&>(options); }
  Optimizer& optimizer_;
};

using AdamRule = FusedAdam<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState,
                           &at::_ops::_fused_adam_::call>;
using AdamWRule = FusedAdam<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState,
                            &at::_ops::_fused_adamw_::call>;

// Returns nullptr if the optimizer is not exactly one of the three types. `optimizer` must outlive the rule.
std::unique_ptr<FusedRule> make_fused_rule(torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  const auto& type = typeid(optimizer);
  if (type == typeid(SGD)) return std::make_unique<FusedSgd>(static_cast<SGD&>(optimizer));
  if (type == typeid(torch::optim::Adam))
    return std::make_unique<AdamRule>(static_cast<torch::optim::Adam&>(optimizer));
  if (type == typeid(torch::optim::AdamW))
    return std::make_unique<AdamWRule>(static_cast<torch::optim::AdamW&>(optimizer));
  return nullptr;
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
  std::int64_t earlier;
  std::size_t fields;
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
    // In half precision, LibTorch's fused kernels round differently from its optimizers.
    if (rule_ == nullptr || found == group_of.end() || (type != torch::kFloat32 && type != torch::kFloat64))
      continue;
    slots_[i].group = found->second;
    ++fused;
  }
  others_ = fused < in_groups_;
}

const torch::optim::OptimizerOptions& BucketOptimizer::options_of(std::size_t group) const {
  const auto& found = std::as_const(optimizer_).param_groups()[group];
  return found.has_options() ? found.options() : std::as_const(optimizer_).defaults();
}

std::span<const Tensor> BucketOptimizer::places(std::size_t bucket, const BucketSlot& slot) {
  const std::size_t fields = rule_->fields(options_of(*slots_[slot.tensor].group));
  auto& flat = flat_state_[bucket];
  while (flat.size() < fields)
    flat.push_back(flat_tensor(plan_.buckets[bucket], places_[slot.tensor].device()));
  auto& state = slots_[slot.tensor].state;
  while (state.size() < fields) state.push_back(slot_view(flat[state.size()], slot, places_[slot.tensor]));
  return {state.data(), fields};
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
    const auto& options = options_of(*group);
    const auto state = places(b, slot);
    const auto earlier = rule_->adopt_state(parameter, options, state);
    torch::autograd::impl::bump_version(parameter);
    const bool padding = rule_->keeps_zeros(options);
    const std::size_t next = s + 1 < bucket.slots.size() ? bucket.slots[s + 1].offset : bucket.payload;
    const Run run{*group, earlier, state.size(), slot.offset, padding ? next : slot.offset + slot.count,
                  s + 1};
    const bool joins = padding && !result.empty() && result.back().next_slot == s &&
                       result.back().group == run.group && result.back().earlier == earlier;
    if (!joins) {
      result.push_back(run);
      continue;
    }
    result.back().end = run.end;
    result.back().next_slot = run.next_slot;
  }
  return result;
}

// The kernels divide gradients by a float32 and store them. This saves one pass over the memory if
// it is exact enough.
std::optional<Tensor> BucketOptimizer::scale_for(std::size_t b, const GradientFactor& factor) {
  const auto* const known = std::get_if<double>(&factor);
  if (known != nullptr && *known == 1) return {};
  bool all = plan_.buckets[b].dtype == DType::float32;
  for (const auto& slot : plan_.buckets[b].slots) all = all && slots_[slot.tensor].group;
  if (all && known != nullptr) return torch::full({}, 1 / *known, gradients_[b].options());
  if (all) return std::get<Tensor>(factor).reciprocal().to(torch::kFloat32);
  multiply(gradients_[b], factor);
  return {};
}

void BucketOptimizer::update(std::size_t b, const GradientFactor& factor,
                             const std::optional<Tensor>& leave_out) {
  const torch::NoGradGuard no_grad;
  std::size_t in_groups = 0;
  for (const auto& group : optimizer_.param_groups()) in_groups += group.params().size();
  if (in_groups != in_groups_) find_groups();
  const auto scale = scale_for(b, factor);
  if (rule_ == nullptr) return;
  for (const auto& run : runs(b)) {
    if (run.first == run.end) continue;  // A tensor without elements.
    const auto piece = [&](const Tensor& flat) {
      return flat.narrow(0, static_cast<std::int64_t>(run.first),
                         static_cast<std::int64_t>(run.end - run.first));
    };
    FlatRun flat{piece(flat_parameters_[b]), piece(gradients_[b]), {}};
    for (std::size_t f = 0; f < run.fields; ++f) flat.state[f] = piece(flat_state_[b][f]);
    rule_->update(flat, options_of(run.group), run.earlier, {scale, leave_out});
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
