// torch::nn::Linear for models that train with a DistributedOptimizer: backward computes the gradients of its
// weight and bias where they are to be reduced, which saves a copy of each a step. Used as the module it
// takes the place of.
#pragma once

#include <memory>
#include <optional>
#include <torch/torch.h>

namespace farandole {

// The same options, parameters and names in state_dict; results differ from torch::nn::Linear's by rounding.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  // x [..., in_features] → [..., out_features].
  torch::Tensor forward(const torch::Tensor& x);
  // As the type that it is, which a Sequential counts on.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(Linear);

}  // namespace farandole
