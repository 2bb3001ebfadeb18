#include "farandole/train/optimizer/bucket_optimizer.h"

#include <algorithm>
#include <array>
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

// Updates flat parameters as LibTorch's SGD, Adam, AdamW and RMSprop do: on GPUs with LibTorch's fused kernels, on CPUs
// with those of comm/kernels/update.h.
class FusedRule {
 public:
  using Options = torch::optim::OptimizerOptions;

  virtual ~FusedRule() = default;
  // Returns whether zeros in parameter, gradient and state stay zeros. Then padding may also be updated.
  virtual bool keeps_zeros(const Options& options) const = 0;
  virtual UpdateRule rule(const Options& options) const = 0;
  // The tensors of a parameter's state, by field; null pointers if the parameter has no state.
  using State = std::array<torch::Tensor*, update_fields>;
  virtual State find_state(const torch::Tensor& parameter) = 0;
  // The same, with a new state if there is none. Counts one update, and sets `earlier` to the number of earlier ones.
  virtual State next_state(const torch::Tensor& parameter, std::int64_t& earlier) = 0;
  // Updates `run` on a GPU once; all of it has been updated `earlier` times before.
  virtual void update(const FlatRun& run, const Options& options, std::int64_t earlier,
                      const FusedScalars& scalars) const = 0;
};

namespace {

using State = FusedRule::State;

State tensors_of(torch::optim::SGDParamState& state) {
  return {&state.momentum_buffer()};
}
template <class AdamState>
State tensors_of(AdamState& state) {
  return {&state.exp_avg(), &state.exp_avg_sq(), &state.max_exp_avg_sq()};
}
State tensors_of(torch::optim::RMSpropParamState& state) {
  return {&state.square_avg(), &state.momentum_buffer(), &state.grad_avg()};
}

std::int64_t count_update(torch::optim::SGDParamState& state) {
  return state.momentum_buffer().defined() ? 1 : 0;
}
template <class StateWithSteps>
std::int64_t count_update(StateWithSteps& state) {
  const auto earlier = state.step();
  state.step(earlier + 1);
  return earlier;
}

template <class Optimizer, class OwnOptions, class OwnState>
class RuleOf : public FusedRule {
 public:
  explicit RuleOf(Optimizer& optimizer) : optimizer_(optimizer) {}

  State find_state(const Tensor& parameter) override {
    const auto found = optimizer_.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer_.state().end() || found->second == nullptr) return {};
    return tensors_of(static_cast<OwnState&>(*found->second));
  }

  State next_state(const Tensor& parameter, std::int64_t& earlier) override {
    auto& state = optimizer_.state()[parameter.unsafeGetTensorImpl()];
    if (state == nullptr) state = std::make_unique<OwnState>();
    auto& own = static_cast<OwnState&>(*state);
    earlier = count_update(own);
    return tensors_of(own);
  }

 protected:
  static const OwnOptions& of(const Options& options) { return static_cast<const OwnOptions&>(options); }

 private:
  Optimizer& optimizer_;
};

class FusedSgd final : public RuleOf<torch::optim::SGD, torch::optim::SGDOptions, torch::optim::SGDParamState> {
 public:
  using RuleOf::RuleOf;

  bool keeps_zeros(const Options&) const override { return true; }

  UpdateRule rule(const Options& options) const override {
    const auto& o = of(options);
    UpdateRule rule{.kind = UpdateRule::Kind::sgd, .lr = o.lr(), .weight_decay = o.weight_decay()};
    rule.momentum = o.momentum();
    rule.dampening = o.dampening();
    rule.nesterov = o.nesterov();
    return rule;
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
};

// Adam and AdamW differ in the types of their options and state, and in weight decay.
template <class Optimizer, class OwnOptions, class OwnState, UpdateRule::Kind kind, auto kernel>
class FusedAdam final : public RuleOf<Optimizer, OwnOptions, OwnState> {
 public:
  using RuleOf<Optimizer, OwnOptions, OwnState>::RuleOf;
  using Options = FusedRule::Options;

  bool keeps_zeros(const Options& options) const override { return this->of(options).eps() > 0; }

  UpdateRule rule(const Options& options) const override {
    const auto& o = this->of(options);
    UpdateRule rule{.kind = kind, .lr = o.lr(), .weight_decay = o.weight_decay()};
    std::tie(rule.beta1, rule.beta2) = o.betas();
    rule.amsgrad = o.amsgrad();
    rule.eps = o.eps();
    return rule;
  }

  void update(const FlatRun& run, const Options& options, std::int64_t earlier,
              const FusedScalars& scalars) const override {
    const auto& o = this->of(options);
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
};

using AdamRule = FusedAdam<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState,
                           UpdateRule::Kind::adam, &at::_ops::_fused_adam_::call>;
using AdamWRule = FusedAdam<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState,
                            UpdateRule::Kind::adamw, &at::_ops::_fused_adamw_::call>;

// On CPUs only, because LibTorch has no fused kernel for it.
class FusedRmsprop final
    : public RuleOf<torch::optim::RMSprop, torch::optim::RMSpropOptions, torch::optim::RMSpropParamState> {
 public:
  using RuleOf::RuleOf;

  bool keeps_zeros(const Options& options) const override { return of(options).eps() > 0; }

  UpdateRule rule(const Options& options) const override {
    const auto& o = of(options);
    UpdateRule rule{.kind = UpdateRule::Kind::rmsprop, .lr = o.lr(), .weight_decay = o.weight_decay()};
    rule.momentum = o.momentum();
    rule.alpha = o.alpha();
    rule.centered = o.centered();
    rule.eps = o.eps();
    return rule;
  }

  void update(const FlatRun&, const Options&, std::int64_t, const FusedScalars&) const override {
    throw Error("RMSprop has no fused kernel for GPUs");
  }
};

// Returns nullptr if the optimizer is not exactly one of these types. `optimizer` must outlive the rule.
std::unique_ptr<FusedRule> make_fused_rule(torch::optim::Optimizer& optimizer, bool on_cpu) {
  using namespace torch::optim;
  const auto& type = typeid(optimizer);
  if (type == typeid(SGD)) return std::make_unique<FusedSgd>(static_cast<SGD&>(optimizer));
  if (type == typeid(torch::optim::Adam))
    return std::make_unique<AdamRule>(static_cast<torch::optim::Adam&>(optimizer));
  if (type == typeid(torch::optim::AdamW))
    return std::make_unique<AdamWRule>(static_cast<torch::optim::AdamW&>(optimizer));
  if (type == typeid(RMSprop) && on_cpu)
    return std::make_unique<FusedRmsprop>(static_cast<RMSprop&>(optimizer));
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
  std::size_t first, end;
  std::size_t next_slot;
};

BucketOptimizer::BucketOptimizer(torch::optim::Optimizer& optimizer, const BucketPlan& plan,
                                 std::vector<Tensor> parameters, std::vector<Tensor> gradients,
                                 NodeSharing* sharing)
    : optimizer_(optimizer),
      plan_(plan),
      rule_(make_fused_rule(optimizer, parameters.empty() || parameters.front().is_cpu())),
      sharing_(sharing),
      parameters_(std::move(parameters)),
      gradients_(std::move(gradients)) {
  const torch::NoGradGuard no_grad;
  places_.resize(parameters_.size());
  slots_.resize(parameters_.size());
  flat_state_.resize(plan_.buckets.size());
  if (sharing_ != nullptr) flat_parameters_ = share_flat();
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const auto& bucket = plan_.buckets[b];
    if (sharing_ == nullptr)
      flat_parameters_.push_back(flat_tensor(bucket, parameters_[bucket.slots.front().tensor].device()));
    for (const auto& slot : bucket.slots) {
      places_[slot.tensor] = slot_view(flat_parameters_[b], slot, parameters_[slot.tensor]);
      if (sharing_ != nullptr && sharing_->node_rank() == 0) places_[slot.tensor].copy_(parameters_[slot.tensor]);
    }
  }
  find_groups();
  if (sharing_ != nullptr) {
    share_state();
    sharing_->meet("shared parameters");
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (sharing_ != nullptr)
      parameters_[i].set_data(places_[i]);
    else
      move_into_place(i);
}

// One tensor per bucket.
std::vector<Tensor> BucketOptimizer::share_flat() {
  std::vector<std::size_t> bytes;
  for (const auto& bucket : plan_.buckets) bytes.push_back(bucket.payload * size_of(bucket.dtype));
  shared_.push_back(sharing_->map(bytes));
  std::vector<Tensor> flat;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    flat.push_back(torch::from_blob(
        shared_.back()->blocks()[b], {static_cast<std::int64_t>(plan_.buckets[b].payload)},
        [blocks = shared_.back()](void*) {}, scalar_type_of(plan_.buckets[b].dtype)));
  return flat;
}

// Shares the fields of the state that any group needs.
void BucketOptimizer::share_state() {
  for (std::size_t field = 0; field < update_fields; ++field) {
    const auto uses = [&](const Slot& slot) { return slot.group && rule_->rule(options_of(*slot.group)).uses(field); };
    if (flat_state_.front()[field].defined() || std::ranges::none_of(slots_, uses)) continue;
    const auto flat = share_flat();
    for (std::size_t b = 0; b < flat.size(); ++b) flat_state_[b][field] = flat[b];
  }
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

// Where the state of a parameter belongs, by field.
const BucketOptimizer::StatePlaces& BucketOptimizer::places(std::size_t bucket, const BucketSlot& slot) {
  const auto rule = rule_->rule(options_of(*slots_[slot.tensor].group));
  auto& state = slots_[slot.tensor].state;
  for (std::size_t field = 0; field < update_fields; ++field) {
    if (state[field].defined() == rule.uses(field)) continue;
    if (state[field].defined()) {
      state[field] = Tensor();
      continue;
    }
    auto& flat = flat_state_[bucket][field];
    if (!flat.defined()) flat = flat_tensor(plan_.buckets[bucket], places_[slot.tensor].device());
    state[field] = slot_view(flat, slot, places_[slot.tensor]);
  }
  return state;
}

// Counts an update of the parameter, whose state gets its place with the current values or zeros. Returns the number of
// earlier updates.
std::int64_t BucketOptimizer::begin_update(std::size_t bucket, const BucketSlot& slot) {
  const auto& parameter = parameters_[slot.tensor];
  const auto& there = places(bucket, slot);
  std::int64_t earlier = 0;
  const auto now = rule_->next_state(parameter, earlier);
  for (std::size_t field = 0; field < update_fields; ++field) {
    const auto& place = there[field];
    if (!place.defined() || same_place(*now[field], place)) continue;
    if (now[field]->defined())
      place.copy_(*now[field]);
    else if (sharing_ == nullptr)  // Otherwise, prepare() has done it.
      place.zero_();
    *now[field] = place;
  }
  slots_[slot.tensor].has_state = true;
  torch::autograd::impl::bump_version(parameter);
  return earlier;
}

void BucketOptimizer::find_changed_groups() {
  std::size_t in_groups = 0;
  for (const auto& group : optimizer_.param_groups()) in_groups += group.params().size();
  if (in_groups != in_groups_) find_groups();
}

void BucketOptimizer::prepare() {
  if (sharing_ == nullptr) return;
  const torch::NoGradGuard no_grad;
  find_changed_groups();
  share_state();
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    for (const auto& slot : plan_.buckets[b].slots) {
      move_into_place(slot.tensor);
      if (!slots_[slot.tensor].group) continue;
      const auto& there = places(b, slot);
      const auto now = rule_->find_state(parameters_[slot.tensor]);
      for (std::size_t field = 0; field < update_fields; ++field) {
        if (!there[field].defined()) continue;
        const bool has_values = now[field] != nullptr && now[field]->defined();
        if (has_values && !same_place(*now[field], there[field])) *now[field] = there[field].copy_(*now[field]);
        if (!has_values && slots_[slot.tensor].has_state) there[field].zero_();
      }
      slots_[slot.tensor].has_state = now[0] != nullptr;
    }
}

void BucketOptimizer::stop_sharing() {
  for (const auto& memory : shared_) memory->make_private();
  shared_.clear();
  sharing_ = nullptr;
}

std::size_t BucketOptimizer::shared_bytes() const {
  std::size_t bytes = 0;
  for (const auto& bucket : plan_.buckets) bytes += bucket.payload * size_of(bucket.dtype);
  return bytes * shared_.size();
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
    const auto earlier = begin_update(b, slot);
    const bool padding = rule_->keeps_zeros(options);
    const std::size_t next = s + 1 < bucket.slots.size() ? bucket.slots[s + 1].offset : bucket.payload;
    const Run run{*group, earlier, slot.offset, padding ? next : slot.offset + slot.count,
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

// LibTorch's kernels divide gradients by a float32 and store them. This saves one pass over the memory if
// it is exact enough.
std::optional<Tensor> BucketOptimizer::scale_for(std::size_t b, const GradientFactor& factor) {
  const auto* const known = std::get_if<double>(&factor);
  if (known != nullptr && *known == 1) return {};
  const bool all = plan_.buckets[b].dtype == DType::float32 && updates_all(b);
  if (all && known != nullptr) return torch::full({}, 1 / *known, gradients_[b].options());
  if (all) return std::get<Tensor>(factor).reciprocal().to(torch::kFloat32);
  multiply(gradients_[b], factor);
  return {};
}

bool BucketOptimizer::updates_all(std::size_t b) const {
  return std::ranges::all_of(plan_.buckets[b].slots,
                             [&](const BucketSlot& slot) { return slots_[slot.tensor].group.has_value(); });
}

void BucketOptimizer::update(std::size_t b, const GradientFactor& factor,
                             const std::optional<Tensor>& leave_out) {
  const torch::NoGradGuard no_grad;
  find_changed_groups();
  if (flat_parameters_[b].is_cpu()) {
    double scale = std::get<double>(factor);
    if (!updates_all(b)) {
      multiply(gradients_[b], factor);
      scale = 1;
    }
    const auto* const own = static_cast<const std::byte*>(gradients_[b].const_data_ptr());
    return update_on_cpu(b, {&own, 1}, 1, scale);
  }
  const auto scale = scale_for(b, factor);
  if (rule_ == nullptr) return;
  for (const auto& run : runs(b)) {
    if (run.first == run.end) continue;  // A tensor without elements.
    const auto piece = [&](const Tensor& flat) {
      return flat.narrow(0, static_cast<std::int64_t>(run.first),
                         static_cast<std::int64_t>(run.end - run.first));
    };
    FlatRun flat{piece(flat_parameters_[b]), piece(gradients_[b]), {}};
    for (std::size_t f = 0; f < update_fields; ++f)
      if (flat_state_[b][f].defined()) flat.state[f] = piece(flat_state_[b][f]);
    rule_->update(flat, options_of(run.group), run.earlier, {scale, leave_out});
  }
}

void BucketOptimizer::update_from(std::size_t b, std::span<const std::byte* const> gradients_by_rank, bool average) {
  const torch::NoGradGuard no_grad;
  find_changed_groups();
  update_on_cpu(b, gradients_by_rank, average ? static_cast<double>(gradients_by_rank.size()) : 1, 1);
}

// Updates this rank's part of the bucket. The sum of `gradients` is divided and multiplied, and stored if it changes.
void BucketOptimizer::update_on_cpu(std::size_t b, std::span<const std::byte* const> gradients, double divisor,
                                    double scale) {
  if (rule_ == nullptr) return;
  const auto& bucket = plan_.buckets[b];
  const std::size_t element = size_of(bucket.dtype);
  const auto [first, last] =
      sharing_ != nullptr ? sharing_->own_part(bucket.payload, element) : std::pair(std::size_t{0}, bucket.payload);
  std::vector<const void*> inputs(gradients.size());
  for (const auto& run : runs(b)) {
    const std::size_t begin = std::max(run.first, first), end = std::min(run.end, last);
    if (begin >= end) continue;
    const auto at = [&](const Tensor& flat) -> void* {
      return flat.defined() ? static_cast<std::byte*>(flat.data_ptr()) + begin * element : nullptr;
    };
    for (std::size_t k = 0; k < inputs.size(); ++k) inputs[k] = gradients[k] + begin * element;
    UpdateSlice slice{.dtype = bucket.dtype, .count = end - begin, .parameter = at(flat_parameters_[b])};
    for (std::size_t field = 0; field < update_fields; ++field) slice.state[field] = at(flat_state_[b][field]);
    slice.gradients = inputs;
    slice.divisor = divisor;
    slice.gradient_scale = scale;
    if (inputs.size() > 1 || scale != 1) slice.reduced = at(gradients_[b]);
    slice.step = run.earlier + 1;
    farandole::update(rule_->rule(options_of(run.group)), slice);
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
