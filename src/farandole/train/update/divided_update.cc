#include "farandole/train/update/divided_update.h"

#include <algorithm>
#include <fmt/format.h>
#include <torch/utils.h>
#include <unordered_map>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {

using torch::Tensor;

// With room for the parts of all ranks, which have the same length.
FlatBuckets::Memory DividedUpdate::room_for_parts(OptimizerRules& rules, BucketDevice& device,
                                                  const BucketPlan& plan, std::vector<Tensor> gradients) {
  FlatBuckets::Memory memory{.gradients = std::move(gradients), .whole_state = false};
  for (auto bucket : plan.buckets) {
    const auto [first, last] = device.own_part(bucket);
    memory.parts.push_back({first, last});
    bucket.payload =
        static_cast<std::size_t>(device.size()) * device.part_of(bucket.payload, size_of(bucket.dtype));
    memory.parameters.push_back(
        flat_tensor(bucket, rules.parameters()[bucket.slots.front().tensor].device()));
  }
  memory.seen = memory.parameters;
  return memory;
}

DividedUpdate::DividedUpdate(OptimizerRules& rules, BucketDevice& device, const BucketPlan& plan,
                             std::vector<Tensor> gradients, DividedUpdate* former)
    : ParameterUpdate({rules, plan, room_for_parts(rules, device, plan, std::move(gradients))}),
      device_(device) {
  const torch::NoGradGuard no_grad;
  flat_.memory().states = &own_;
  flat_.move_all_into_place();
  if (former == nullptr) return;
  std::unordered_map<const void*, std::pair<std::size_t, const BucketSlot*>> places;
  for (std::size_t b = 0; b < flat_.plan().buckets.size(); ++b)
    for (const auto& slot : flat_.plan().buckets[b].slots)
      places[rules.parameters()[slot.tensor].unsafeGetTensorImpl()] = {b, &slot};
  former->visit_state([&](const Tensor& parameter, ParamState& state) {
    const auto [b, slot] = places.at(parameter.unsafeGetTensorImpl());
    adopt(b, *slot, state.clone());
  });
  former->own_.clear();
}

DividedUpdate::~DividedUpdate() {
  auto& states = flat_.rules().optimizer().state();
  for (auto& [parameter, own] : own_)
    if (auto& state = states[parameter]; state == nullptr) state = std::move(own);
}

void DividedUpdate::update(std::size_t b, const BucketGradients& gradients,
                           const std::optional<Tensor>& leave_out) {
  flat_.update(b, gradients, leave_out);
  gather(fmt::format("parameters of bucket {}", b), b, flat_.memory().parameters[b]);
}

void DividedUpdate::gather(const std::string& name, std::size_t b, const Tensor& flat) {
  const auto& bucket = flat_.plan().buckets[b];
  const auto element = size_of(bucket.dtype);
  device_.gather(name, flat.data_ptr(), device_.part_of(bucket.payload, element) * element);
}

DividedUpdate::ParamState* DividedUpdate::state_of(const BucketSlot& slot) const {
  const auto found = own_.find(flat_.rules().parameters()[slot.tensor].unsafeGetTensorImpl());
  return found == own_.end() ? nullptr : found->second.get();
}

void DividedUpdate::take_over_state() {
  auto& states = flat_.rules().optimizer().state();
  if (states.empty()) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t b = 0; b < flat_.plan().buckets.size(); ++b)
    for (const auto& slot : flat_.plan().buckets[b].slots) {
      const auto found = states.find(flat_.rules().parameters()[slot.tensor].unsafeGetTensorImpl());
      if (found == states.end()) continue;
      auto whole = std::move(found->second);
      states.erase(found);
      if (whole != nullptr) adopt(b, slot, std::move(whole));
    }
}

// Keeps this rank's part of the state.
void DividedUpdate::adopt(std::size_t b, const BucketSlot& slot, std::unique_ptr<ParamState> whole) {
  for (auto* const field : flat_.rules().tensors_of(*whole))
    if (field != nullptr && field->defined()) *field = part_of(*field, b, slot);
  own_[flat_.rules().parameters()[slot.tensor].unsafeGetTensorImpl()] = std::move(whole);
}

Tensor DividedUpdate::part_of(const Tensor& whole, std::size_t b, const BucketSlot& slot) const {
  const auto& parameter = flat_.rules().parameters()[slot.tensor];
  if (whole.sizes() != parameter.sizes())
    throw UserError(fmt::format(
        "the optimizer has the state of {} in parts, from a DistributedOptimizer that has ended; call gather_state() "
        "of a DistributedOptimizer before it ends, or load a checkpoint",
        flat_.plan().tensors[slot.tensor].name));
  const auto flat =
      torch::empty({static_cast<std::int64_t>(slot.count)}, parameter.options().requires_grad(false));
  slot_view(flat, {slot.tensor, 0, slot.count}, parameter).copy_(whole);
  const auto [first, last] = flat_.part_of(b, slot);
  return elements(flat, first < last ? first - slot.offset : 0, last - first).clone();
}

void DividedUpdate::visit_state(const VisitOptimizerState& visit) {
  const torch::NoGradGuard no_grad;
  take_over_state();
  const auto& rules = flat_.rules();
  for (std::size_t b = 0; b < flat_.plan().buckets.size(); ++b) {
    const auto& slots = flat_.plan().buckets[b].slots;
    StateFields whole;
    for (std::size_t f = 0; f < update_fields; ++f) {
      // The slots that have the field are the same ones on all ranks.
      for (const auto& slot : slots) {
        auto* const own = state_of(slot);
        const auto* const field = own != nullptr ? rules.tensors_of(*own)[f] : nullptr;
        if (field == nullptr || !field->defined()) continue;
        if (!whole[f].defined()) whole[f] = torch::zeros_like(flat_.memory().parameters[b]);
        const auto [first, last] = flat_.part_of(b, slot);
        elements(whole[f], first, last - first).copy_(*field);
      }
      if (whole[f].defined()) gather(fmt::format("state of bucket {}", b), b, whole[f]);
    }
    device_.hold();
    for (const auto& slot : slots) {
      const auto* const own = state_of(slot);
      if (own == nullptr) continue;
      const auto& parameter = rules.parameters()[slot.tensor];
      const auto state = own->clone();
      const auto fields = rules.tensors_of(*state);
      for (std::size_t f = 0; f < update_fields; ++f)
        if (fields[f] != nullptr && fields[f]->defined()) *fields[f] = slot_view(whole[f], slot, parameter);
      visit(parameter, *state);
    }
  }
}

void DividedUpdate::gather_state() {
  std::vector<std::pair<Tensor, std::unique_ptr<ParamState>>> whole;
  visit_state(
      [&](const Tensor& parameter, ParamState& state) { whole.emplace_back(parameter, state.clone()); });
  own_.clear();
  for (auto& [parameter, state] : whole)
    flat_.rules().optimizer().state()[parameter.unsafeGetTensorImpl()] = std::move(state);
}

Sharding DividedUpdate::sharding() const {
  std::size_t parameters = 0;
  for (const auto& flat : flat_.memory().parameters) parameters += bytes_of(flat);
  const auto state = flat_.state_bytes(), ranks = static_cast<std::size_t>(device_.size());
  return {.divided = true,
          .why_not = {},
          .ranks = device_.size(),
          .on_gpus = true,
          .bytes = parameters + state,
          .bytes_undivided = parameters + ranks * state};
}

}  // namespace farandole
