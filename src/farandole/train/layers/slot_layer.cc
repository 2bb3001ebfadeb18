#include "farandole/train/layers/slot_layer.h"

#include <algorithm>
#include <torch/utils.h>

namespace farandole {
namespace {

bool has_tangent(const torch::Tensor& tensor) {  // For forward-mode differentiation.
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

}  // namespace

bool computes_in_bucket(const torch::Tensor& weight, std::initializer_list<torch::Tensor> others) {
  return torch::GradMode::is_enabled() && GradientSlot::of(weight) != nullptr && !has_tangent(weight) &&
         std::none_of(others.begin(), others.end(), has_tangent);
}

GradientSlot::Place place_for(const torch::Tensor& parameter) {
  auto* const slot = GradientSlot::of(parameter);
  return slot != nullptr ? slot->take(parameter) : GradientSlot::Place();
}

}  // namespace farandole
