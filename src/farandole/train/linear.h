// A torch::nn::Linear for models that train with a DistributedOptimizer. Backward computes the
// gradients of weight and bias in the bucket in which they are reduced, which saves one copy of each
// per step. Use it like torch::nn::Linear.
// Thread safety: call from the training thread only.
#pragma once

#include <memory>
#include <optional>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

namespace farandole {

// It has the same options, parameters and names in state_dict. Results differ from those
// of torch::nn::Linear by rounding.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  // x [..., in_features] → [..., out_features].
  torch::Tensor forward(const torch::Tensor& x);
  // Returns the derived type, which Sequential needs.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(Linear);

}  // namespace farandole
