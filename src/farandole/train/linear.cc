#include "farandole/train/linear.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "farandole/train/layers/slot_layer.h"

namespace farandole {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

}  // namespace farandole
