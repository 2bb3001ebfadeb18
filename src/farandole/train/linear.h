// torch::nn::Linear for models that train with a DistributedOptimizer: backward computes the gradients of the
// weight and the bias in the memory from which they are reduced. This saves one copy of each in each step.
// Thread safety: as of torch::nn::Linear.
#pragma once

#include <memory>
#include <optional>
#include <torch/torch.h>

namespace farandole {

// Options, parameters and names in state_dict are those of torch::nn::Linear; results differ by rounding.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  // x [..., in_features] → [..., out_features].
  torch::Tensor forward(const torch::Tensor& x);
  // The copy has this type, which a Sequential needs.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(Linear);

}  // namespace farandole
