// Batch normalisation over the batches of all ranks together. Used by the training thread.
#pragma once

#include <memory>
#include <torch/torch.h>

#include "farandole/train/session.h"
#include "farandole/train/tensor_collectives.h"

namespace farandole {

// What torch::nn::BatchNorm1d, 2d and 3d make of the concatenated batch, with their options and the same
// names in parameters, buffers and checkpoints: input [n, features, …] of 2 to 5 dimensions, where n may
// differ between ranks and be 0. Training forward and backward each reduce 16 bytes a feature over the ranks;
// weight and bias get this rank's gradients, for the optimizer to reduce. Evaluation stays local. Where the
// running statistics are kept, they are the same on all ranks. forward() throws UserError for other shapes,
// and on all ranks where these have fewer than two values a feature together.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  struct Tensors {
    torch::Tensor weight, bias;                                    // undefined unless affine
    torch::Tensor running_mean, running_var, num_batches_tracked;  // undefined unless tracked
  };

  // Over all ranks of the job, or those of a group; outlives the module.
  SyncBatchNormImpl(Session& session, const torch::nn::BatchNormOptions& with)
      : SyncBatchNormImpl(session.collectives(), with) {}
  SyncBatchNormImpl(TensorCollectives& ranks, const torch::nn::BatchNormOptions& with);
  // With the tensors of another module, not copies.
  SyncBatchNormImpl(TensorCollectives& ranks, const torch::nn::BatchNormOptions& with,
                    const Tensors& tensors);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  torch::Tensor forward(const torch::Tensor& input);

  torch::nn::BatchNormOptions options;
  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  void take(const Tensors& tensors);
  double count_batch();

  TensorCollectives* ranks_;
};
TORCH_MODULE(SyncBatchNorm);

// The same layers with SyncBatchNorm in the place of each BatchNorm1d, 2d and 3d; parameters and buffers are
// shared with `layers`, so optimizers made before stay good. What LibTorch lets nobody replace, the members
// of modules of one's own, must be declared as SyncBatchNorm instead.
torch::nn::Sequential convert_sync_batchnorm(const torch::nn::Sequential& layers, TensorCollectives& ranks);

}  // namespace farandole
