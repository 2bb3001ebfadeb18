#include "farandole/train/optimizer/bucket_optimizer.h"

#include <ATen/Parallel.h>
#include <algorithm>
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
  // update and returns its number, or 1 if the rule does not depend on the number. `zeroed`: places that no
  // tensor has used are zero.
  virtual std::int64_t adopt_state(const Tensor& parameter, const StateFields& places, bool zeroed) = 0;
  // The tensors of the parameter's state; null pointers if it has none.
  using State = std::array<Tensor*, update_fields>;
  virtual State find_state(const Tensor& parameter) = 0;
};

// Parts of equal length of a bucket's parameters, gradients and state.
struct FlatRun {
  Tensor parameters;
  Tensor gradients;
  StateFields state;
};

// The gradients of a bucket in memory of the host: their sum over the ranks is divided, and multiplied.
struct HostGradients {
  std::span<const std::byte* const> by_rank;  // whole buckets
  double divisor = 1, factor = 1;
};

namespace {

// Returns the state of the parameter; creates it if there is none.
template <class State>
State& state_of(torch::optim::Optimizer& optimizer, const Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (state == nullptr) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

void move_fields(const FusedRule::State& state, const StateFields& places, bool zeroed) {
  for (std::size_t f = 0; f < update_fields; ++f) {
    if (!places[f].defined() || same_place(*state[f], places[f])) continue;
    if (state[f]->defined())
      places[f].copy_(*state[f]);
    else if (!zeroed)
      places[f].zero_();
    *state[f] = places[f];
  }
}

FusedRule::State tensors_of(torch::optim::SGDParamState& state) {
  return {&state.momentum_buffer()};
}
FusedRule::State tensors_of(torch::optim::RMSpropParamState& state) {
  return {&state.square_avg(), &state.momentum_buffer(), &state.grad_avg()};
}
template <class OfAdam>
FusedRule::State tensors_of(OfAdam& state) {
  return {&state.exp_avg(), &state.exp_avg_sq(), &state.max_exp_avg_sq()};
}

template <class OfParameter>
FusedRule::State find_state_of(torch::optim::Optimizer& optimizer, const Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end() || found->second == nullptr) return {};
  return tensors_of(static_cast<OfParameter&>(*found->second));
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

  std::int64_t adopt_state(const Tensor& parameter, const StateFields& places, bool zeroed) override {
    if (!places[0].defined()) return 1;
    auto& state = state_of<torch::optim::SGDParamState>(optimizer_, parameter);
    const bool first = !state.momentum_buffer().defined();
    move_fields(tensors_of(state), places, zeroed);
    return first ? 1 : 2;
  }
  State find_state(const Tensor& parameter) override {
    return find_state_of<torch::optim::SGDParamState>(optimizer_, parameter);
  }

 private:
  torch::optim::SGD& optimizer_;
};

// Adam and AdamW differ in the types of their options and state, and in weight decay.
template <class Optimizer, class AdamOptions, class OwnState, UpdateRule::Kind kind>
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

  std::int64_t adopt_state(const Tensor& parameter, const StateFields& places, bool zeroed) override {
    auto& state = state_of<OwnState>(optimizer_, parameter);
    move_fields(tensors_of(state), places, zeroed);
    return count_update(state);
  }
  State find_state(const Tensor& parameter) override {
    return find_state_of<OwnState>(optimizer_, parameter);
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

  std::int64_t adopt_state(const Tensor& parameter, const StateFields& places, bool zeroed) override {
    auto& state = state_of<torch::optim::RMSpropParamState>(optimizer_, parameter);
    move_fields(tensors_of(state), places, zeroed);
    count_update(state);
    return 1;
  }
  State find_state(const Tensor& parameter) override {
    return find_state_of<torch::optim::RMSpropParamState>(optimizer_, parameter);
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

// Uses the gradients from element `first` of the bucket on. If they are of one rank and change, they are
// stored. Uses LibTorch's threads.
void update_on_host(const FlatRun& run, const UpdateRule& rule, std::int64_t step,
                    const HostGradients& gradients, std::size_t first) {
  constexpr std::int64_t unit = 16;  // elements of a cache line, which belong to one thread
  const std::int64_t count = run.parameters.numel();
  const auto update_part = [&](std::int64_t begin, std::int64_t end) {
    begin *= unit;
    end = std::min(end * unit, count);
    const auto element = run.parameters.element_size();
    const auto at = [&](const Tensor& tensor) -> void* {
      if (!tensor.defined()) return nullptr;
      return static_cast<std::byte*>(tensor.data_ptr()) + static_cast<std::size_t>(begin) * element;
    };
    std::vector<const void*> inputs;
    for (const auto* const bucket : gradients.by_rank)
      inputs.push_back(bucket + (first + static_cast<std::size_t>(begin)) * element);
    const bool changes = inputs.size() == 1 && gradients.factor != 1;
    update(rule, {.dtype = dtype_of(run.parameters),
                  .count = static_cast<std::size_t>(end - begin),
                  .parameter = at(run.parameters),
                  .state = {at(run.state[0]), at(run.state[1]), at(run.state[2])},
                  .gradients = inputs,
                  .divisor = gradients.divisor,
                  .gradient_scale = gradients.factor,
                  .reduced = changes ? at(run.gradients) : nullptr,
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
                                 std::vector<Tensor> parameters, std::vector<Tensor> gradients,
                                 NodeSharing* sharing, std::vector<Tensor> flat_parameters)
    : optimizer_(optimizer),
      plan_(plan),
      rule_(make_fused_rule(optimizer)),
      sharing_(sharing),
      parameters_(std::move(parameters)),
      gradients_(std::move(gradients)),
      flat_parameters_(std::move(flat_parameters)) {
  const torch::NoGradGuard no_grad;
  places_.resize(parameters_.size());
  slots_.resize(parameters_.size());
  flat_state_.resize(plan_.buckets.size());
  find_groups();
  if (sharing_ != nullptr) {
    flat_parameters_ = share_flat(Views::yes);
    share_state();
    const auto notes = static_cast<std::size_t>(sharing_->node_size()) * (places_.size() + 2);
    notes_ = sharing_->map(std::vector{notes * sizeof(std::uint64_t)}, Views::no);
  } else if (flat_parameters_.empty()) {
    for (const auto& bucket : plan_.buckets)
      flat_parameters_.push_back(flat_tensor(bucket, parameters_[bucket.slots.front().tensor].device()));
  }
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    for (const auto& slot : plan_.buckets[b].slots) {
      const auto& parameter = parameters_[slot.tensor];
      const auto place = slot_view(flat_parameters_[b], slot, parameter);
      if (sharing_ == nullptr || sharing_->node_rank() == 0) place.copy_(parameter);
      places_[slot.tensor] = sharing_ == nullptr ? place : slot_view(flat_views_[b], slot, parameter);
    }
  if (sharing_ != nullptr) sharing_->meet("shared parameters");
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].set_data(places_[i]);
}

// One tensor per bucket.
std::vector<Tensor> BucketOptimizer::share_flat(Views views) {
  std::vector<std::size_t> bytes;
  for (const auto& bucket : plan_.buckets) bytes.push_back(bucket.payload * size_of(bucket.dtype));
  shared_.push_back(sharing_->map(bytes, views));
  const auto tensors = [&](const std::vector<std::byte*>& places) {
    std::vector<Tensor> flat;
    for (std::size_t b = 0; b < places.size(); ++b)
      flat.push_back(torch::from_blob(
          places[b], {static_cast<std::int64_t>(plan_.buckets[b].payload)},
          [blocks = shared_.back()](void*) {}, scalar_type_of(plan_.buckets[b].dtype)));
    return flat;
  };
  if (views == Views::yes) flat_views_ = tensors(shared_.back()->views());
  return tensors(shared_.back()->blocks());
}

// Shares the fields of the state that any group needs.
void BucketOptimizer::share_state() {
  for (std::size_t f = 0; f < update_fields; ++f) {
    const auto uses = [&](const Slot& slot) { return slot.group && rule_of(*slot.group).uses(f); };
    if (flat_state_.front()[f].defined() || std::ranges::none_of(slots_, uses)) continue;
    const auto flat = share_flat(Views::no);
    for (std::size_t b = 0; b < flat.size(); ++b) flat_state_[b][f] = flat[b];
  }
}

bool BucketOptimizer::prepare(int limit) {
  const torch::NoGradGuard no_grad;
  find_changed_groups();
  move_all_into_place();
  if (!any_has_changes("begin of the update")) {
    calls_with_changes_ = 0;
    return true;
  }
  return adopt_changes() && ++calls_with_changes_ < limit;
}

// What a rank tells the others: two answers to any_has_changes(), in turns, and the hashes of its parameters.
std::span<std::uint64_t> BucketOptimizer::notes_of(int node_rank) const {
  const auto count = places_.size() + 2;
  return {reinterpret_cast<std::uint64_t*>(notes_->blocks().front()) +
              static_cast<std::size_t>(node_rank) * count,
          count};
}

// Another rank may still read the last answer.
bool BucketOptimizer::any_has_changes(const char* meeting) {
  const std::size_t turn = ++turns_ % 2;
  notes_of(sharing_->node_rank())[turn] = shared_.front()->has_changes();
  sharing_->meet(meeting);
  bool any = false;
  for (int r = 0; r < sharing_->node_size(); ++r) any |= notes_of(r)[turn] != 0;
  return any;
}

bool BucketOptimizer::adopt_changes() {
  const auto hashes = notes_of(sharing_->node_rank()).subspan(2);
  for (std::size_t i = 0; i < places_.size(); ++i) hashes[i] = hash_of(places_[i]);
  sharing_->meet("changes of parameters");
  for (int r = 0; r < sharing_->node_size(); ++r) {
    const auto of_rank = notes_of(r).subspan(2);
    const auto differs = std::ranges::mismatch(hashes, of_rank).in1;
    if (differs == hashes.end()) continue;
    const auto index = static_cast<std::size_t>(differs - hashes.begin());
    first_difference_ = std::min(first_difference_.value_or(index), index);
  }
  if (first_difference_) return false;
  for (std::size_t b = 0; b < flat_views_.size(); ++b) {
    const auto [first, last] = sharing_->own_part(plan_.buckets[b].payload, size_of(plan_.buckets[b].dtype));
    elements(flat_parameters_[b], first, last - first).copy_(elements(flat_views_[b], first, last - first));
  }
  sharing_->meet("changes of parameters");
  shared_.front()->drop_changes();
  return true;
}

void BucketOptimizer::move_all_into_place() {
  share_state();
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    for (const auto& bucket_slot : plan_.buckets[b].slots) {
      auto& slot = slots_[bucket_slot.tensor];
      move_into_place(parameters_[bucket_slot.tensor], places_[bucket_slot.tensor]);
      if (!slot.group) continue;
      const auto there = places(b, bucket_slot, rule_of(*slot.group));
      const auto now = rule_->find_state(parameters_[bucket_slot.tensor]);
      for (std::size_t f = 0; f < update_fields; ++f) {
        if (!there[f].defined()) continue;
        const bool has_values = now[f] != nullptr && now[f]->defined();
        if (has_values && !same_place(*now[f], there[f])) *now[f] = there[f].copy_(*now[f]);
        if (!has_values && slot.has_state) there[f].zero_();
      }
      slot.has_state = now[0] != nullptr;
    }
}

KnownHashes BucketOptimizer::hash_places() {
  const auto hashes = notes_of(0).subspan(2);
  const auto ranks = static_cast<std::size_t>(sharing_->node_size());
  for (auto i = static_cast<std::size_t>(sharing_->node_rank()); i < places_.size(); i += ranks)
    hashes[i] = hash_of(places_[i]);
  KnownHashes known;
  if (any_has_changes("hashes of parameters")) return known;
  for (std::size_t i = 0; i < places_.size(); ++i) known[places_[i].const_data_ptr()] = hashes[i];
  sharing_->meet("hashes of parameters");
  return known;
}

void BucketOptimizer::stop_sharing() {
  for (const auto& memory : shared_) memory->make_private();
  shared_.clear();
  flat_parameters_ = flat_views_;
  sharing_ = nullptr;
}

std::size_t BucketOptimizer::shared_bytes() const {
  std::size_t bytes = 0;
  for (const auto& bucket : plan_.buckets) bytes += bucket.payload * size_of(bucket.dtype);
  return bytes * shared_.size();
}

BucketOptimizer::~BucketOptimizer() = default;

void move_into_place(const Tensor& parameter, const Tensor& place) {
  if (same_place(parameter, place)) return;
  const torch::NoGradGuard no_grad;
  place.copy_(parameter);
  parameter.set_data(place);
}

bool has_fused_update(torch::optim::Optimizer& optimizer) {
  return make_fused_rule(optimizer) != nullptr;
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
    move_into_place(parameter, places_[slot.tensor]);
    const auto rule = rule_of(*group);
    const auto step = rule_->adopt_state(parameter, places(b, slot, rule), sharing_ != nullptr);
    slots_[slot.tensor].has_state = true;
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

void BucketOptimizer::find_changed_groups() {
  std::size_t in_groups = 0;
  for (const auto& group : optimizer_.param_groups()) in_groups += group.params().size();
  if (in_groups != in_groups_) find_groups();
}

void BucketOptimizer::update(std::size_t b, const GradientFactor& factor,
                             const std::optional<Tensor>& leave_out) {
  const torch::NoGradGuard no_grad;
  find_changed_groups();
  // The kernels store the product. This saves one pass over the memory if they update all of the bucket.
  const bool on_device = gradients_[b].is_cuda();
  bool all = !on_device || plan_.buckets[b].dtype == DType::float32;
  for (const auto& slot : plan_.buckets[b].slots) all = all && slots_[slot.tensor].group;
  const GradientFactor left = all ? factor : GradientFactor(1.0);
  if (!all) multiply(gradients_[b], factor);
  if (rule_ == nullptr) return;
  if (!on_device) {
    if (leave_out && leave_out->item<float>() == 1) {
      runs(b);  // Counts updates.
      return;
    }
    const auto* const own = static_cast<const std::byte*>(gradients_[b].const_data_ptr());
    return update_part(b, {.by_rank = {&own, 1}, .factor = number_of(left)});
  }
  const auto divisor = divisor_of(left, gradients_[b]);
  for (const auto& run : runs(b))
    if (run.first != run.end)  // A tensor may have no elements.
      update_on_device(piece_of(b, run.first, run.end), rule_of(run.group), run.step, divisor, leave_out);
}

void BucketOptimizer::update_from(std::size_t b, std::span<const std::byte* const> gradients_by_rank,
                                  bool average) {
  const torch::NoGradGuard no_grad;
  find_changed_groups();
  update_part(b, {gradients_by_rank, average ? static_cast<double>(gradients_by_rank.size()) : 1, 1});
}

// Updates this rank's part of the bucket.
void BucketOptimizer::update_part(std::size_t b, const HostGradients& gradients) {
  const auto& bucket = plan_.buckets[b];
  std::pair<std::size_t, std::size_t> part{0, bucket.payload};
  if (sharing_ != nullptr) part = sharing_->own_part(bucket.payload, size_of(bucket.dtype));
  for (const auto& run : runs(b)) {
    const auto first = std::max(run.first, part.first), end = std::min(run.end, part.second);
    if (first < end) update_on_host(piece_of(b, first, end), rule_of(run.group), run.step, gradients, first);
  }
}

FlatRun BucketOptimizer::piece_of(std::size_t b, std::size_t first, std::size_t end) const {
  const auto piece = [&](const Tensor& flat) {
    return flat.defined() ? elements(flat, first, end - first) : flat;
  };
  FlatRun run{piece(flat_parameters_[b]), piece(gradients_[b]), {}};
  for (std::size_t f = 0; f < update_fields; ++f) run.state[f] = piece(flat_state_[b][f]);
  return run;
}

std::size_t BucketOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto& bucket : plan_.buckets)
    for (const auto& slot : bucket.slots)
      for (std::size_t f = 0; f < update_fields; ++f)
        if (const auto group = slots_[slot.tensor].group; group && rule_of(*group).uses(f))
          bytes += slot.count * size_of(bucket.dtype);
  return bytes;
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
    move_into_place(parameters_[i], places_[i]);
    torch::autograd::impl::bump_version(parameters_[i]);
  }
  return flat_parameters_;
}

}  // namespace farandole
