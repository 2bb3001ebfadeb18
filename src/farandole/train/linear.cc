#include "farandole/train/linear.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "farandole/train/optimizer/gradient_slot.h"

namespace farandole {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor place_for(const Tensor& parameter) {
  auto* const slot = GradientSlot::of(parameter);
  return slot != nullptr ? slot->take(parameter) : Tensor();
}

// Computes the products of autograd in the same order.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias) {
    context->save_for_backward({x, weight, bias.value_or(Tensor())});
    return torch::linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const auto rows = outputs[0].reshape({-1, weight.size(0)});
    variable_list gradients(3);
    if (context->needs_input_grad(0)) gradients[0] = rows.mm(weight).view(x.sizes());
    if (context->needs_input_grad(1)) {
      const auto inputs = x.reshape({-1, weight.size(1)});
      auto place = place_for(weight);
      gradients[1] = place.defined() ? at::mm_out(place, rows.t(), inputs) : rows.t().mm(inputs);
    }
    if (bias.defined() && context->needs_input_grad(2)) {
      auto place = place_for(bias);
      gradients[2] = place.defined() ? at::sum_out(place, rows, {0}) : rows.sum(0);
    }
    return gradients;
  }
};

bool has_tangent(const Tensor& tensor) {  // For forward-mode differentiation.
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

}  // namespace

Tensor LinearImpl::forward(const Tensor& x) {
  const auto own_bias = bias.defined() ? std::make_optional(bias) : std::nullopt;
  const bool in_place = torch::GradMode::is_enabled() && GradientSlot::of(weight) != nullptr &&
                        !has_tangent(x) && !has_tangent(weight) && !has_tangent(bias);
  return in_place ? LinearFunction::apply(x, weight, own_bias) : torch::linear(x, weight, own_bias);
}

std::shared_ptr<torch::nn::Module> LinearImpl::clone(const std::optional<torch::Device>& device) const {
  const auto copied = torch::nn::LinearImpl::clone(device);
  auto result = std::make_shared<LinearImpl>(options);
  static_cast<torch::nn::LinearImpl&>(*result) = dynamic_cast<const torch::nn::LinearImpl&>(*copied);
  return result;
}

}  // namespace farandole
