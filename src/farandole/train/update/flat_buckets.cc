#include "farandole/train/update/flat_buckets.h"

#include <ATen/Parallel.h>
#include <algorithm>
#include <torch/csrc/autograd/variable.h>
#include <torch/utils.h>
#include <utility>

#include "farandole/comm/kernels/update.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {

using torch::Tensor;

// Neighbouring slots that one call updates: elements [first, end) of the bucket.
struct FlatBuckets::Run {
  std::size_t group;
  std::int64_t step;
  std::size_t first, end;
  std::size_t next_slot;
};

struct FlatBuckets::Piece {
  Tensor parameters, gradients;
  StateFields state;
  std::size_t first;  // its first element in the bucket
  std::int64_t step;
};

namespace {

// Whether zeros in parameter, gradient and state stay zeros. Then padding may also be updated.
bool keeps_zeros(const UpdateRule& rule) {
  return rule.kind == UpdateRule::Kind::sgd || rule.eps > 0;
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

}  // namespace

FlatBuckets::Memory FlatBuckets::whole(OptimizerRules& rules, const BucketPlan& plan,
                                       std::vector<Tensor> gradients) {
  Memory memory{.gradients = std::move(gradients), .states = &rules.optimizer().state()};
  for (const auto& bucket : plan.buckets) {
    memory.parameters.push_back(
        flat_tensor(bucket, rules.parameters()[bucket.slots.front().tensor].device()));
    memory.parts.push_back({0, bucket.payload});
  }
  memory.seen = memory.parameters;
  return memory;
}

FlatBuckets::FlatBuckets(OptimizerRules& rules, BucketPlan plan, Memory memory)
    : rules_(rules), plan_(std::move(plan)), memory_(std::move(memory)) {
  places_.resize(rules_.parameters().size());
  slot_states_.resize(places_.size());
  flat_state_.resize(plan_.buckets.size());
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    for (const auto& slot : plan_.buckets[b].slots)
      places_[slot.tensor] = slot_view(memory_.seen[b], slot, rules_.parameters()[slot.tensor]);
}

void FlatBuckets::move_into_place(std::size_t tensor) {
  const auto &parameter = rules_.parameters()[tensor], &place = places_[tensor];
  if (same_place(parameter, place)) return;
  const torch::NoGradGuard no_grad;
  place.copy_(parameter);
  parameter.set_data(place);
}

void FlatBuckets::move_all_into_place() {
  for (std::size_t i = 0; i < places_.size(); ++i) move_into_place(i);
}

FlatBuckets::Part FlatBuckets::part_of(std::size_t b, const BucketSlot& slot) const {
  const auto [first, last] = memory_.parts[b];
  return {std::clamp(slot.offset, first, last), std::clamp(slot.offset + slot.count, first, last)};
}

StateFields FlatBuckets::state_places(std::size_t b, const BucketSlot& slot, const UpdateRule& rule) {
  StateFields result;
  const auto& parameter = places_[slot.tensor];
  for (std::size_t f = 0; f < update_fields; ++f) {
    if (!rule.uses(f)) continue;
    auto &flat = flat_state_[b][f], &place = slot_states_[slot.tensor][f];
    if (!flat.defined()) {
      auto bucket = plan_.buckets[b];
      if (!memory_.whole_state) bucket.payload = memory_.parts[b].last - memory_.parts[b].first;
      flat = flat_tensor(bucket, parameter.device());
    }
    if (!place.defined() && memory_.whole_state) place = slot_view(flat, slot, parameter);
    if (!place.defined()) {
      const auto [first, last] = part_of(b, slot);
      place = elements(flat, first - memory_.parts[b].first, last - first);
    }
    result[f] = place;
  }
  return result;
}

// Of what this rank updates.
std::vector<FlatBuckets::Run> FlatBuckets::runs(std::size_t b) {
  std::vector<Run> result;
  const auto& bucket = plan_.buckets[b];
  for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
    const auto& slot = bucket.slots[s];
    const auto& parameter = rules_.parameters()[slot.tensor];
    const auto group = rules_.group_of(slot.tensor);
    if (!group || !parameter.grad().defined()) continue;
    move_into_place(slot.tensor);
    const auto rule = rules_.rule_of(*group);
    const auto step =
        rules_.adopt_state(*memory_.states, slot.tensor, state_places(b, slot, rule), memory_.zeroed);
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
  const auto [first, last] = memory_.parts[b];
  for (auto& run : result) run.first = std::max(run.first, first), run.end = std::min(run.end, last);
  std::erase_if(result, [](const Run& run) { return run.first >= run.end; });
  return result;
}

FlatBuckets::Piece FlatBuckets::piece_of(std::size_t b, const Run& run) const {
  const auto count = run.end - run.first;
  Piece piece{elements(memory_.parameters[b], run.first, count),
              elements(memory_.gradients[b], run.first, count),
              {},
              run.first,
              run.step};
  const auto state_begins = memory_.whole_state ? 0 : memory_.parts[b].first;
  for (std::size_t f = 0; f < update_fields; ++f)
    if (const auto& flat = flat_state_[b][f]; flat.defined())
      piece.state[f] = elements(flat, run.first - state_begins, count);
  return piece;
}

// Gradients that are reduced already are stored if they change. Uses LibTorch's threads.
void FlatBuckets::update_on_host(const Piece& run, const UpdateRule& rule, const BucketGradients& gradients) {
  constexpr std::int64_t unit = 16;  // elements of a cache line, which belong to one thread
  const std::int64_t count = run.parameters.numel();
  const double factor = number_of(gradients.factor);
  const bool changes = gradients.by_rank.empty() && factor != 1;
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
      inputs.push_back(bucket + (run.first + static_cast<std::size_t>(begin)) * element);
    if (inputs.empty()) inputs.push_back(at(run.gradients));
    farandole::update(rule, {.dtype = dtype_of(run.parameters),
                             .count = static_cast<std::size_t>(end - begin),
                             .parameter = at(run.parameters),
                             .state = {at(run.state[0]), at(run.state[1]), at(run.state[2])},
                             .gradients = inputs,
                             .divisor = gradients.divisor,
                             .gradient_scale = factor,
                             .reduced = changes ? at(run.gradients) : nullptr,
                             .step = run.step});
  };
  at::parallel_for(0, (count + unit - 1) / unit, at::internal::GRAIN_SIZE / unit, update_part);
}

// LibTorch has no fused kernel for RMSprop. These are the operations of torch::optim's step.
void FlatBuckets::update_rmsprop(const Piece& run, const UpdateRule& rule,
                                 const std::optional<Tensor>& divisor,
                                 const std::optional<Tensor>& leave_out) {
  if (leave_out && leave_out->item<float>() == 1) return;
  if (divisor) run.gradients.div_(*divisor);
  const auto& square_average = run.state[0];
  const auto gradient =
      rule.weight_decay != 0 ? run.gradients.add(run.parameters, rule.weight_decay) : run.gradients;
  square_average.mul_(rule.alpha).addcmul_(gradient, gradient, 1 - rule.alpha);
  Tensor average = square_average;
  if (rule.centered) {
    const auto& mean = run.state[2];
    mean.mul_(rule.alpha).add_(gradient, 1 - rule.alpha);
    average = square_average.addcmul(mean, mean, -1);
  }
  average = average.sqrt().add_(rule.eps);
  if (rule.uses(1))
    run.parameters.add_(run.state[1].mul_(rule.momentum).addcdiv_(gradient, average), -rule.lr);
  else
    run.parameters.addcdiv_(gradient, average, -rule.lr);
}

// With LibTorch's kernels. `divisor` and `leave_out` are scalars of float32 on the device. Gradients are
// divided by the first and stored; nothing is changed if the second is 1.
void FlatBuckets::update_on_device(const Piece& run, const UpdateRule& rule,
                                   const std::optional<Tensor>& divisor,
                                   const std::optional<Tensor>& leave_out) {
  if (rule.kind == UpdateRule::Kind::rmsprop) return update_rmsprop(run, rule, divisor, leave_out);
  if (rule.kind == UpdateRule::Kind::sgd) {
    std::vector<Tensor> momentum;
    if (rule.uses(0)) momentum.push_back(run.state[0]);
    at::_fused_sgd_({run.parameters}, {run.gradients}, momentum, rule.weight_decay, rule.momentum, rule.lr,
                    rule.dampening, rule.nesterov, /*maximize=*/false, /*is_first_step=*/run.step == 1,
                    divisor, leave_out);
    return;
  }
  const auto steps =
      torch::full({}, static_cast<double>(run.step), run.parameters.options().dtype(torch::kFloat32));
  std::vector<Tensor> largest;
  if (rule.amsgrad) largest.push_back(run.state[2]);
  const auto kernel =
      rule.kind == UpdateRule::Kind::adam ? &at::_ops::_fused_adam_::call : &at::_ops::_fused_adamw_::call;
  kernel({run.parameters}, {run.gradients}, {run.state[0]}, {run.state[1]}, largest, {steps}, rule.lr,
         rule.beta1, rule.beta2, rule.weight_decay, rule.eps, rule.amsgrad, /*maximize=*/false, divisor,
         leave_out);
}

void FlatBuckets::update(std::size_t b, const BucketGradients& gradients,
                         const std::optional<Tensor>& leave_out) {
  const torch::NoGradGuard no_grad;
  const auto& bucket = plan_.buckets[b];
  const auto& flat = memory_.gradients[b];
  // The kernels store the product. This saves one pass over the memory if they update all of the bucket.
  const bool on_device = flat.is_cuda();
  bool all = !on_device || bucket.dtype == DType::float32;
  for (const auto& slot : bucket.slots) all = all && rules_.group_of(slot.tensor);
  auto left = gradients;
  if (!all) {
    const auto [first, last] = memory_.parts[b];
    multiply(elements(flat, first, last - first), std::exchange(left.factor, 1.0));
  }
  const auto own = runs(b);  // Counts updates.
  if (on_device) {
    const auto divisor = divisor_of(left.factor, flat);
    for (const auto& run : own)
      update_on_device(piece_of(b, run), rules_.rule_of(run.group), divisor, leave_out);
  } else if (!leave_out || leave_out->item<float>() != 1) {
    for (const auto& run : own) update_on_host(piece_of(b, run), rules_.rule_of(run.group), left);
  }
}

std::vector<Tensor>& FlatBuckets::writable_parameters() {
  move_all_into_place();
  for (const auto& parameter : rules_.parameters()) torch::autograd::impl::bump_version(parameter);
  return memory_.parameters;
}

std::size_t FlatBuckets::state_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    for (const auto& slot : plan_.buckets[b].slots) {
      const auto group = rules_.group_of(slot.tensor);
      if (!group) continue;
      const auto rule = rules_.rule_of(*group);
      const auto [first, last] = part_of(b, slot);
      for (std::size_t f = 0; f < update_fields; ++f)
        if (rule.uses(f)) bytes += (last - first) * size_of(plan_.buckets[b].dtype);
    }
  return bytes;
}

}  // namespace farandole
