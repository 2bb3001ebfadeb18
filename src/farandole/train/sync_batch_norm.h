// Batch normalization over the batches of all ranks.
// Thread safety: call from the training thread only.
#pragma once

#include <memory>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include "farandole/train/tensor_collectives.h"

namespace farandole {

// Computes what torch::nn::BatchNorm1d, 2d and 3d compute for the concatenated batch, with the same options
// and the same names of parameters, buffers and checkpoints. The input is [n, features, …] with 2 to 5
// dimensions; n may differ between ranks and may be 0. In training, forward and backward each reduce 16 bytes
// per feature over the ranks. Weight and bias get this rank's gradients, which the optimizer reduces.
// Evaluation needs no communication. Running statistics are equal on all ranks.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  struct Tensors {
    torch::Tensor weight, bias;                                    // Undefined unless affine.
    torch::Tensor running_mean, running_var, num_batches_tracked;  // Undefined unless tracked.
  };

  // Uses all ranks of the job or those of a group, which must outlive the module.
  SyncBatchNormImpl(TensorCollectives& ranks, const torch::nn::BatchNormOptions& with);
  // Uses the tensors of another module without copying them.
  SyncBatchNormImpl(TensorCollectives& ranks, const torch::nn::BatchNormOptions& with,
                    const Tensors& tensors);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  // Collective: every rank of the group must call this in the same order, except in evaluation.
  // Throws: UserError for other shapes, and on all ranks if all of them together have fewer than two
  // values per feature.
  torch::Tensor forward(const torch::Tensor& input);

  torch::nn::BatchNormOptions options;
  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  void take(const Tensors& tensors);
  double count_batch();

  TensorCollectives* ranks_;
};
TORCH_MODULE(SyncBatchNorm);

// Returns the same layers with SyncBatchNorm instead of each BatchNorm1d, 2d and 3d. Parameters and buffers
// are shared with `layers`, so existing optimizers stay valid. LibTorch does not allow replacing the members
// of user-defined modules; these must be declared as SyncBatchNorm.
torch::nn::Sequential convert_sync_batchnorm(const torch::nn::Sequential& layers, TensorCollectives& ranks);

}  // namespace farandole
