// A torch::nn::Embedding for models that train with a DistributedOptimizer. Backward adds up the gradient of
// the weight in the bucket in which it is reduced, also if a Linear shares the weight. This saves one copy of
// it per step, and with a shared weight one sum. Use it like torch::nn::Embedding.
// Thread safety: call from the training thread only.
#pragma once

#include <memory>
#include <optional>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/types.h>

namespace farandole {

// It has the same options, parameters and names in state_dict, and on CPUs the same results. On GPUs,
// LibTorch adds the gradients of equal indices in any order unless its deterministic algorithms are switched
// on. LibTorch computes the gradient in memory of its own with the options sparse, max_norm and
// scale_grad_by_freq, and on GPUs if the weight has 16 bits.
class EmbeddingImpl : public torch::nn::EmbeddingImpl {
 public:
  using torch::nn::EmbeddingImpl::EmbeddingImpl;
  // indices int64 or int32 [...] → rows of the weight [..., embedding_dim].
  torch::Tensor forward(const torch::Tensor& indices);
  // Returns the derived type, which Sequential needs.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(Embedding);

}  // namespace farandole
