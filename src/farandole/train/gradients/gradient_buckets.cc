#include "farandole/train/gradients/gradient_buckets.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include "farandole/base/error.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {

using torch::Tensor;

const char* const of_inner_step =
    "the parameters were changed after backward, but not by step() of the DistributedOptimizer, so each rank has "
    "used its own gradients; call step() of the DistributedOptimizer instead of the inner optimizer's, or "
    "synchronize() before other code changes parameters";

namespace {

// Changes when code changes the parameter: by its version or, because LibTorch's optimizers hide their
// changes from it, by its first bytes. Those on a GPU are not read.
std::size_t mark_of(const Tensor& parameter) {
  auto mark = static_cast<std::size_t>(parameter._version());
  if (!parameter.device().is_cpu() || !parameter.is_contiguous() || parameter.numel() == 0) return mark;
  const std::string_view bytes(static_cast<const char*>(parameter.const_data_ptr()),
                               std::min<std::size_t>(bytes_of(parameter), 64));
  return mark ^ std::hash<std::string_view>{}(bytes);
}

}  // namespace

GradientBuckets::GradientBuckets(GradientReducer& reducer, DeviceReducer* device,
                                 std::vector<Tensor> parameters, int passes)
    : reducer_(reducer), device_(device), parameters_(std::move(parameters)), passes_per_step_(passes) {
  if (passes < 1) throw UserError("backward_passes_per_step must be at least 1");
  views_.resize(parameters_.size());
  passes_.assign(parameters_.size(), 0);
  marks_.assign(parameters_.size(), 0);
  listeners_.resize(parameters_.size());
  packed_later_.resize(parameters_.size());
  for (const auto& bucket : reducer_.plan().buckets) {
    const auto first = bucket.slots.front().tensor;
    flat_.push_back(
        torch::from_blob(reducer_.data(first), {static_cast<std::int64_t>(bucket.payload)},
                         torch::dtype(scalar_type_of(bucket.dtype)).device(parameters_[first].device())));
    for (const auto& slot : bucket.slots)
      views_[slot.tensor] = slot_view(flat_.back(), slot, parameters_[slot.tensor]);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad() = Tensor();
    listen(i);
  }
}

GradientBuckets::~GradientBuckets() {
  for (auto& listener : listeners_) listener.stop();
  for (auto& parameter : parameters_) parameter.mutable_grad() = Tensor();
}

void GradientBuckets::Listener::stop() {
  accumulator->del_post_hook(reinterpret_cast<std::uintptr_t>(slot));
}

// A parameter's accumulator exists as long as it is referenced. Its post hook runs after the
// gradient has been stored.
void GradientBuckets::listen(std::size_t i) {
  auto slot = std::make_unique<GradientSlot>(views_[i], [this, i] { arrived(i); });
  listeners_[i] = {torch::autograd::impl::grad_accumulator(parameters_[i]), slot.get()};
  listeners_[i].accumulator->add_post_hook(std::move(slot));
}

// A parameter whose memory is replaced, for example by torch::load, gets another accumulator. Returns
// whether this has happened.
bool GradientBuckets::listen_again(std::size_t i) {
  if (torch::autograd::impl::try_get_grad_accumulator(parameters_[i]) == listeners_[i].accumulator)
    return false;
  listeners_[i].stop();
  listen(i);
  return true;
}

void GradientBuckets::arrived(std::size_t i) {
  if (!parameters_[i].grad().defined()) return;
  if (device_ == nullptr || !like_its_view(parameters_[i].grad(), i)) pack(i);
  if (passes_[i] == 0) marks_[i] = mark_of(parameters_[i]);
  if (++passes_[i] == passes_per_step_) hand_over(i);
  if (passes_[i] > passes_per_step_ && overtaken()) throw UserError(of_inner_step);
  if (passes_[i] > passes_per_step_)
    throw UserError(
        "a second backward came before step(); set backward_passes_per_step to the number of backward "
        "calls per step");
}

void GradientBuckets::pack(std::size_t i) {
  auto& gradient = parameters_[i].mutable_grad();
  if (same_place(gradient, views_[i])) return;
  const torch::NoGradGuard no_grad;
  views_[i].copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
  packed_bytes_ += bytes_of(views_[i]);
  // A gradient with a graph belongs to the user until it is reduced.
  if (!gradient.requires_grad()) gradient = views_[i];
}

bool GradientBuckets::like_its_view(const Tensor& gradient, std::size_t i) const {
  const auto& view = views_[i];
  return gradient.layout() == torch::kStrided && gradient.device() == view.device() &&
         gradient.scalar_type() == view.scalar_type() && gradient.sizes() == view.sizes() &&
         gradient.strides() == view.strides();
}

void GradientBuckets::hand_over(std::size_t i) {
  const auto& gradient = parameters_[i].grad();
  if (same_place(gradient, views_[i]) || device_ == nullptr) return reducer_.mark_ready(i);
  packed_later_[i] = gradient;
  packed_bytes_ += bytes_of(views_[i]);
  device_->mark_ready_elsewhere(i, static_cast<const std::byte*>(gradient.const_data_ptr()));
}

void GradientBuckets::attach(std::size_t bucket) {
  for (const auto& slot : reducer_.plan().buckets[bucket].slots)
    parameters_[slot.tensor].mutable_grad() = reducer_.present(slot.tensor) ? views_[slot.tensor] : Tensor();
}

std::optional<Tensor> GradientBuckets::found_nonfinite(std::size_t bucket) const {
  float* const found = device_ != nullptr ? device_->found_nonfinite(bucket) : nullptr;
  if (found == nullptr) return std::nullopt;
  return torch::from_blob(found, {}, torch::dtype(torch::kFloat32).device(flat_[bucket].device()));
}

void GradientBuckets::finish(const std::function<void(std::size_t)>& reduced) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (listen_again(i) && passes_[i] == 0) arrived(i);
    if (passes_[i] > 0 && passes_[i] < passes_per_step_) hand_over(i);
  }
  reducer_.finish([&](std::size_t bucket) {
    attach(bucket);
    if (reduced) reduced(bucket);
  });
  std::fill(packed_later_.begin(), packed_later_.end(), Tensor());
  std::fill(passes_.begin(), passes_.end(), 0);
}

bool GradientBuckets::pending() const {
  return std::any_of(passes_.begin(), passes_.end(), [](int n) { return n > 0; });
}

bool GradientBuckets::overtaken() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (passes_[i] > 0 && mark_of(parameters_[i]) != marks_[i]) return true;
  return false;
}

bool GradientBuckets::clear() {
  // The reduction of gradients that are discarded may have begun. Then all ranks finish the step
  // that they have begun.
  const bool thrown_away = pending();
  if (thrown_away) {
    reducer_.finish();
    if (device_ != nullptr) device_->discard();
  }
  std::fill(packed_later_.begin(), packed_later_.end(), Tensor());
  std::fill(passes_.begin(), passes_.end(), 0);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad() = Tensor();
    listen_again(i);
    listeners_[i].slot->give_back();
  }
  return thrown_away;
}

void GradientBuckets::collect(std::size_t bucket) {
  for (const auto& slot : reducer_.plan().buckets[bucket].slots)
    if (parameters_[slot.tensor].grad().defined()) pack(slot.tensor);
}

void multiply(Tensor gradients, const GradientFactor& factor) {
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

void append_norms(const Tensor& flat, std::vector<Tensor>& norms) {
  constexpr std::int64_t row = 4096;
  // In half precision, the norm of a row could overflow although its elements are finite.
  const auto type = flat.element_size() == 2 ? torch::kFloat32 : flat.scalar_type();
  const std::int64_t rest = flat.numel() % row;
  const auto rows = flat.narrow(0, 0, flat.numel() - rest).view({-1, row});
  norms.push_back(rows.norm(2, {1}, false, type).to(torch::kFloat64));
  norms.push_back(flat.narrow(0, flat.numel() - rest, rest).norm(2, type).to(torch::kFloat64).view({1}));
}

// The norm is computed tensor by tensor, so that its rounding does not depend on the plan.
Tensor GradientBuckets::norm() const {
  const torch::NoGradGuard no_grad;
  if (parameters_.empty()) return torch::zeros({}, torch::kFloat64);
  std::vector<std::vector<Tensor>> by_tensor(parameters_.size());
  for (std::size_t b = 0; b < flat_.size(); ++b)
    for (const auto& slot : reducer_.plan().buckets[b].slots)
      append_norms(elements(flat_[b], slot.offset, slot.count), by_tensor[slot.tensor]);
  std::vector<Tensor> norms;
  for (const auto& of_tensor : by_tensor) norms.insert(norms.end(), of_tensor.begin(), of_tensor.end());
  return torch::cat(norms).norm();
}

}  // namespace farandole
