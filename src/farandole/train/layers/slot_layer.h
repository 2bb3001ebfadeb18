// What layers have in common that compute the gradients of their parameters in buckets.
// Thread safety: any thread may call this at any time. For clone_as, it must be the training thread.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "farandole/train/layers/gradient_slot.h"

namespace farandole {

// Returns whether the forward pass that is running should use a function of ours: its backward can compute
// the gradient of `weight` in a bucket. `others`: the function's other inputs; they may be undefined.
bool computes_in_bucket(const torch::Tensor& weight, std::initializer_list<torch::Tensor> others);

// GradientSlot::take(), for any parameter.
GradientSlot::Place place_for(const torch::Tensor& parameter);

// Returns a clone of `layer` with the derived type, which Sequential needs.
template <class Layer, class OfLibTorch>
std::shared_ptr<torch::nn::Module> clone_as(const OfLibTorch& layer,
                                            const std::optional<torch::Device>& device) {
  const auto copied = layer.OfLibTorch::clone(device);
  auto result = std::make_shared<Layer>(layer.options);
  static_cast<OfLibTorch&>(*result) = dynamic_cast<const OfLibTorch&>(*copied);
  return result;
}

}  // namespace farandole
