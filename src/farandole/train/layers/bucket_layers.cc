// Layers that compute the gradients of their parameters in buckets.
#include <ATen/autocast_mode.h>
#include <algorithm>
#include <initializer_list>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "farandole/train/embedding.h"
#include "farandole/train/layers/gradient_slot.h"
#include "farandole/train/linear.h"

namespace farandole {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_tangent(const torch::Tensor& tensor) {  // For forward-mode differentiation.
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

// Returns whether the forward pass that is running should use a function of ours: its backward can compute
// the gradient of `weight` in a bucket. `others`: the function's other inputs; they may be undefined.
bool computes_in_bucket(const torch::Tensor& weight, std::initializer_list<torch::Tensor> others);
bool computes_in_bucket(const torch::Tensor& weight, std::initializer_list<torch::Tensor> others) {
  return torch::GradMode::is_enabled() && GradientSlot::of(weight) != nullptr && !has_tangent(weight) &&
         std::none_of(others.begin(), others.end(), has_tangent);
}

// GradientSlot::take(), for any parameter.
GradientSlot::Place place_for(const torch::Tensor& parameter) {
  auto* const slot = GradientSlot::of(parameter);
  return slot != nullptr ? slot->take(parameter) : GradientSlot::Place();
}

// Returns a clone of `layer` with the derived type, which Sequential needs.
template <class Layer, class OfLibTorch>
std::shared_ptr<torch::nn::Module> clone_as(const OfLibTorch& layer,
                                            const std::optional<torch::Device>& device) {
  const auto copied = layer.OfLibTorch::clone(device);
  auto result = std::make_shared<Layer>(layer.options);
  static_cast<OfLibTorch&>(*result) = dynamic_cast<const OfLibTorch&>(*copied);
  return result;
}

// The product of a and b as the gradient of a parameter of this type.
Tensor product_in(GradientSlot::Place place, const Tensor& a, const Tensor& b, c10::ScalarType type) {
  auto& memory = place.memory;
  if (!memory.defined()) return a.mm(b).to(type);
  const bool same_type = type == a.scalar_type();
  if (!place.add) return same_type ? at::mm_out(memory, a, b) : memory.copy_(a.mm(b));
  if (same_type)
    memory.addmm_(a, b);
  else
    memory.add_(a.mm(b));
  return {};
}

Tensor sum_in(GradientSlot::Place place, const Tensor& rows, c10::ScalarType type) {
  auto& memory = place.memory;
  if (memory.defined() && !place.add) return at::sum_out(memory, rows, {0}, false, type);
  const auto sum = rows.sum(0, false, type);
  if (!memory.defined()) return sum;
  memory.add_(sum);
  return {};
}

// Computes the products of autograd in the same order. With mixed precision, the input is rounded and the
// parameters are not; the gradients of the parameters have their type.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias) {
    context->save_for_backward({x, weight, bias.value_or(Tensor())});
    const auto type = x.scalar_type();
    return torch::linear(x, weight.to(type), bias ? std::make_optional(bias->to(type)) : bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const auto rows = outputs[0].reshape({-1, weight.size(0)});
    variable_list gradients(3);
    if (context->needs_input_grad(0)) gradients[0] = rows.mm(weight.to(rows.scalar_type())).view(x.sizes());
    if (context->needs_input_grad(1))
      gradients[1] =
          product_in(place_for(weight), rows.t(), x.reshape({-1, weight.size(1)}), weight.scalar_type());
    if (bias.defined() && context->needs_input_grad(2))
      gradients[2] = sum_in(place_for(bias), rows, bias.scalar_type());
    return gradients;
  }
};

// `padding`: index of the row without a gradient; -1: none. Adds the rows in the same order as LibTorch.
struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& weight, const Tensor& indices,
                        std::int64_t padding) {
    context->save_for_backward({indices});
    context->saved_data["weight"] = weight;  // Unlike what is saved above, it may change before backward.
    context->saved_data["padding"] = padding;
    return torch::embedding(weight, indices, padding);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const auto indices = context->get_saved_variables()[0];
    const auto weight = context->saved_data["weight"].toTensor();
    const auto padding = context->saved_data["padding"].toInt();
    auto [memory, add] = place_for(weight);
    if (!memory.defined())
      return {at::embedding_dense_backward(outputs[0], indices, weight.size(0), padding, false), {}, {}};
    auto rows = outputs[0].reshape({-1, weight.size(1)});
    if (padding >= 0) rows = rows.masked_fill(indices.reshape({-1, 1}) == padding, 0);
    if (!add) memory.zero_();
    memory.index_add_(0, indices.reshape(-1), rows);
    return {add ? Tensor() : std::move(memory), {}, {}};
  }
};

}  // namespace

Tensor LinearImpl::forward(const Tensor& x) {
  const auto own_bias = bias.defined() ? std::make_optional(bias) : std::nullopt;
  if (!computes_in_bucket(weight, {x, bias})) return torch::linear(x, weight, own_bias);
  const auto device = x.device().type();
  // Autocast does not round float64.
  if (!at::autocast::is_autocast_enabled(device) || x.scalar_type() == torch::kFloat64)
    return LinearFunction::apply(x, weight, own_bias);
  return LinearFunction::apply(x.to(at::autocast::get_autocast_dtype(device)), weight, own_bias);
}

std::shared_ptr<torch::nn::Module> LinearImpl::clone(const std::optional<torch::Device>& device) const {
  return clone_as<LinearImpl, torch::nn::LinearImpl>(*this, device);
}

Tensor EmbeddingImpl::forward(const Tensor& indices) {
  const bool plain = !options.sparse() && !options.max_norm() && !options.scale_grad_by_freq();
  // Sums of many rows need more than 16 bits. On CPUs, LibTorch's have no more either.
  const bool exact = weight.is_cpu() || !at::isReducedFloatingType(weight.scalar_type());
  if (!plain || !exact || !computes_in_bucket(weight, {})) return torch::nn::EmbeddingImpl::forward(indices);
  return EmbeddingFunction::apply(weight, indices, options.padding_idx().value_or(-1));
}

std::shared_ptr<torch::nn::Module> EmbeddingImpl::clone(const std::optional<torch::Device>& device) const {
  return clone_as<EmbeddingImpl, torch::nn::EmbeddingImpl>(*this, device);
}

}  // namespace farandole
