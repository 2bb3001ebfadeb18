#include "farandole/train/optimizer/divided_optimizer.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim.h>
#include <torch/utils.h>
#include <typeinfo>
#include <unordered_map>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {

using torch::Tensor;

namespace {

std::unordered_map<const void*, std::size_t> numbers_of(const std::vector<Tensor>& tensors) {
  std::unordered_map<const void*, std::size_t> numbers;
  for (std::size_t i = 0; i < tensors.size(); ++i) numbers[tensors[i].unsafeGetTensorImpl()] = i;
  return numbers;
}

// The numbers of the optimizer's parameters in `tensors`, as names; "other" if they are not there.
std::vector<std::string> names_in(const std::vector<Tensor>& tensors,
                                  const torch::optim::Optimizer& optimizer) {
  const auto numbers = numbers_of(tensors);
  std::vector<std::string> names;
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params()) {
      const auto found = numbers.find(parameter.unsafeGetTensorImpl());
      names.push_back(found != numbers.end() ? std::to_string(found->second) : "other");
    }
  return names;
}

// "12/exp_avg" → 12 and "exp_avg"; no value for "other/exp_avg".
std::pair<std::optional<std::size_t>, std::string> parse(const std::string& name) {
  const auto slash = name.find('/');
  return {parse_number<std::size_t>(name.substr(0, slash)), name.substr(slash + 1)};
}

bool is_counter(const Tensor& value) {
  return value.scalar_type() == torch::kInt64;
}

std::unique_ptr<torch::optim::OptimizerOptions> options_of(const torch::optim::Optimizer& optimizer,
                                                           std::size_t group) {
  const auto& found = optimizer.param_groups()[group];
  return (found.has_options() ? found.options() : optimizer.defaults()).clone();
}

// An optimizer of the same kind, which has the parts of the parameters in the same groups.
std::unique_ptr<torch::optim::Optimizer> optimizer_of_parts(const torch::optim::Optimizer& optimizer,
                                                            const std::vector<Tensor>& parameters,
                                                            const std::vector<Tensor>& parts) {
  using namespace torch::optim;
  const auto numbers = numbers_of(parameters);
  std::vector<OptimizerParamGroup> groups;
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    std::vector<Tensor> own;
    for (const auto& parameter : optimizer.param_groups()[g].params())
      if (const auto found = numbers.find(parameter.unsafeGetTensorImpl()); found != numbers.end())
        own.push_back(parts[found->second]);
    groups.emplace_back(std::move(own), options_of(optimizer, g));
  }
  const auto& defaults = optimizer.defaults();
  const auto& type = typeid(optimizer);
  if (type == typeid(SGD)) return std::make_unique<SGD>(groups, static_cast<const SGDOptions&>(defaults));
  if (type == typeid(Adam)) return std::make_unique<Adam>(groups, static_cast<const AdamOptions&>(defaults));
  if (type == typeid(AdamW))
    return std::make_unique<AdamW>(groups, static_cast<const AdamWOptions&>(defaults));
  if (type == typeid(RMSprop))
    return std::make_unique<RMSprop>(groups, static_cast<const RMSpropOptions&>(defaults));
  throw UserError("the state of this optimizer cannot be divided; use SGD, Adam, AdamW or RMSprop");
}

}  // namespace

DividedOptimizer::DividedOptimizer(torch::optim::Optimizer& optimizer, BucketDevice& device,
                                   const BucketPlan& plan, std::vector<Tensor> parameters,
                                   const std::vector<Tensor>& gradients, DividedOptimizer* former)
    : optimizer_(optimizer),
      device_(device),
      plan_(plan),
      plan_of_parts_(plan),
      parameters_(std::move(parameters)) {
  const torch::NoGradGuard no_grad;
  for (auto* const by_tensor : {&places_, &parts_, &gradients_}) by_tensor->resize(parameters_.size());
  slots_.resize(parameters_.size());
  std::vector<Tensor> flat_parts, flat_gradients;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    auto whole = plan_.buckets[b];
    whole.payload =
        static_cast<std::size_t>(device_.size()) * device_.part_of(whole.payload, size_of(whole.dtype));
    flat_parameters_.push_back(flat_tensor(whole, parameters_[whole.slots.front().tensor].device()));
    const auto [first, last] = device_.own_part(plan_.buckets[b]);
    flat_parts.push_back(elements(flat_parameters_[b], first, last - first));
    flat_gradients.push_back(elements(gradients[b], first, last - first));
    plan_of_parts_.buckets[b].payload = last - first;
    for (std::size_t s = 0; s < whole.slots.size(); ++s) {
      const auto& [tensor, offset, count] = whole.slots[s];
      slots_[tensor] = {b, s};
      places_[tensor] = slot_view(flat_parameters_[b], whole.slots[s], parameters_[tensor]);
      move_into_place(parameters_[tensor], places_[tensor]);
      const auto begin = std::clamp(offset, first, last), end = std::clamp(offset + count, first, last);
      plan_of_parts_.buckets[b].slots[s] = {tensor, begin - first, end - begin};
      parts_[tensor] = elements(flat_parts[b], begin - first, end - begin);
      gradients_[tensor] = elements(flat_gradients[b], begin - first, end - begin);
    }
  }
  own_ = optimizer_of_parts(optimizer_, parameters_, parts_);
  updates_.emplace(*own_, plan_of_parts_, parts_, std::move(flat_gradients), nullptr, std::move(flat_parts));
  if (former == nullptr) return;
  NamedTensors parts;
  former->visit_state([&](std::size_t tensor, const std::string& field, const Tensor& value) {
    parts.emplace_back(fmt::format("{}/{}", tensor, field),
                       is_counter(value) ? value : part_of(value, tensor));
  });
  import_optimizer_state(*own_, names_in(parts_, *own_), parts);
  former->forget_state();
}

DividedOptimizer::~DividedOptimizer() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto own = own_->state().find(parts_[i].unsafeGetTensorImpl());
    if (own == own_->state().end()) continue;
    auto& state = optimizer_.state()[parameters_[i].unsafeGetTensorImpl()];
    if (state == nullptr) state = std::move(own->second);
  }
}

// Programs change them, for example the learning rate.
void DividedOptimizer::follow_options() {
  for (std::size_t g = 0; g < own_->param_groups().size(); ++g)
    own_->param_groups()[g].set_options(options_of(optimizer_, g));
}

void DividedOptimizer::update(std::size_t b, const GradientFactor& factor,
                              const std::optional<Tensor>& leave_out) {
  const torch::NoGradGuard no_grad;
  if (b == 0) {
    take_over_state();
    follow_options();
  }
  for (const auto& slot : plan_.buckets[b].slots) {
    const auto& parameter = parameters_[slot.tensor];
    move_into_place(parameter, places_[slot.tensor]);
    const bool present = parameter.grad().defined();
    parts_[slot.tensor].mutable_grad() = present ? gradients_[slot.tensor] : Tensor();
    if (present) torch::autograd::impl::bump_version(parameter);
  }
  updates_->update(b, factor, leave_out);
  if (!has_others()) gather(b);
}

void DividedOptimizer::update_others() {
  if (!has_others()) return;
  updates_->update_others();
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) gather(b);
  hold();
}

void DividedOptimizer::gather(std::size_t b) {
  const auto& bucket = plan_.buckets[b];
  const auto element = size_of(bucket.dtype);
  device_.gather(fmt::format("parameters of bucket {}", b), flat_parameters_[b].data_ptr(),
                 device_.part_of(bucket.payload, element) * element);
}

NamedTensors DividedOptimizer::own_state() const {
  return export_optimizer_state(*own_, names_in(parts_, *own_));
}

Sharding DividedOptimizer::sharding() const {
  std::size_t state = 0, parameters = 0;
  for (const auto& [name, value] : own_state())
    if (!is_counter(value)) state += bytes_of(value);
  for (const auto& flat : flat_parameters_) parameters += bytes_of(flat);
  state = std::max(state, updates_->state_bytes());
  const auto ranks = static_cast<std::size_t>(device_.size());
  return {.divided = true,
          .why_not = {},
          .ranks = device_.size(),
          .on_gpus = true,
          .bytes = parameters + state,
          .bytes_undivided = parameters + ranks * state};
}

Tensor DividedOptimizer::part_of(const Tensor& whole, std::size_t tensor) const {
  const auto& parameter = parameters_[tensor];
  if (whole.sizes() != parameter.sizes())
    throw UserError(fmt::format(
        "the optimizer has the state of {} in parts, from a DistributedOptimizer that has ended; call gather_state() "
        "of a DistributedOptimizer before it ends, or load a checkpoint",
        plan_.tensors[tensor].name));
  const auto [b, s] = slots_[tensor];
  const auto& slot = plan_.buckets[b].slots[s];
  const auto flat =
      torch::empty({static_cast<std::int64_t>(slot.count)}, parameter.options().requires_grad(false));
  slot_view(flat, {tensor, 0, slot.count}, parameter).copy_(whole);
  const auto& own = plan_of_parts_.buckets[b].slots[s];
  const auto first = device_.own_part(plan_.buckets[b]).first;
  const auto begin = std::clamp(first, slot.offset, slot.offset + slot.count) - slot.offset;
  return elements(flat, begin, own.count).clone();
}

void DividedOptimizer::take_over_state() {
  if (optimizer_.state().empty()) return;
  std::map<std::string, Tensor> state;
  for (auto& [name, value] : own_state()) state[name] = value;
  std::set<std::size_t> replaced;
  for (const auto& [name, value] : export_optimizer_state(optimizer_, names_in(parameters_, optimizer_))) {
    const auto tensor = parse(name).first;
    if (!tensor) continue;
    const auto prefix = std::to_string(*tensor) + "/";
    if (replaced.insert(*tensor).second)
      std::erase_if(state, [&](const auto& item) { return item.first.starts_with(prefix); });
    state[name] = is_counter(value) ? value : part_of(value, *tensor);
  }
  import_optimizer_state(*own_, names_in(parts_, *own_), {state.begin(), state.end()});
  for (const auto& parameter : parameters_) optimizer_.state().erase(parameter.unsafeGetTensorImpl());
}

void DividedOptimizer::visit_state(const Visit& visit) {
  const torch::NoGradGuard no_grad;
  take_over_state();
  std::map<std::string, Tensor> state;
  std::set<std::string> fields;
  for (const auto& [name, value] : own_state()) {
    state[name] = value;
    fields.insert(parse(name).second);
  }
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const auto& bucket = plan_.buckets[b];
    const auto element = size_of(bucket.dtype);
    const auto part = device_.part_of(bucket.payload, element);
    for (const auto& field : fields) {
      // Of the slots that have it, the same ones on all ranks.
      std::vector<std::pair<BucketSlot, Tensor>> own;
      for (const auto& slot : bucket.slots)
        if (const auto found = state.find(fmt::format("{}/{}", slot.tensor, field)); found != state.end())
          own.emplace_back(slot, found->second);
      if (own.empty()) continue;
      if (is_counter(own.front().second)) {
        for (const auto& [slot, value] : own) visit(slot.tensor, field, value);
        continue;
      }
      const auto whole = torch::zeros_like(flat_parameters_[b]);
      const auto first = device_.own_part(bucket).first;
      for (const auto& [slot, value] : own) {
        const auto& of_part = plan_of_parts_.buckets[b].slots[slots_[slot.tensor].second];
        elements(whole, first + of_part.offset, of_part.count).copy_(value);
      }
      device_.gather(fmt::format("state of bucket {}", b), whole.data_ptr(), part * element);
      hold();
      for (const auto& [slot, value] : own)
        visit(slot.tensor, field, slot_view(whole, slot, parameters_[slot.tensor]));
    }
  }
}

void DividedOptimizer::gather_state() {
  NamedTensors whole;
  visit_state([&](std::size_t tensor, const std::string& field, const Tensor& value) {
    whole.emplace_back(fmt::format("{}/{}", tensor, field), value);
  });
  if (whole.empty()) return;
  forget_state();
  import_optimizer_state(optimizer_, names_in(parameters_, optimizer_), whole);
}

}  // namespace farandole
