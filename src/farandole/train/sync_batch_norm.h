// Batch normalisation over the batches of all ranks together.
// Thread safety: call from the training thread only.
#pragma once

#include <memory>
#include <torch/torch.h>

#include "farandole/train/session.h"
#include "farandole/train/tensor_collectives.h"

namespace farandole {

// The result is that of torch::nn::BatchNorm1d, 2d and 3d on the concatenated batch of all ranks. Options and
// the names of parameters and buffers are theirs. Input: [n, features, …] of 2 to 5 dimensions, where n may
// differ between ranks and be 0; the output has the same shape. In training, forward and backward each reduce
// 16 bytes a feature over the ranks. Weight and bias get this rank's gradients, which the optimizer reduces.
// In evaluation nothing is sent. Running statistics, where they are kept, are the same on all ranks.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  struct Tensors {
    torch::Tensor weight, bias;                                    // undefined unless affine
    torch::Tensor running_mean, running_var, num_batches_tracked;  // undefined unless tracked
  };

  // Over all ranks of the job, or over those of a group. The session or the group outlives the module.
  SyncBatchNormImpl(Session& session, const torch::nn::BatchNormOptions& with)
      : SyncBatchNormImpl(session.collectives(), with) {}
  SyncBatchNormImpl(TensorCollectives& ranks, const torch::nn::BatchNormOptions& with);
  // With the tensors of another module, not copies.
  SyncBatchNormImpl(TensorCollectives& ranks, const torch::nn::BatchNormOptions& with,
                    const Tensors& tensors);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  // In training: Collective: every rank of the group must call this in the same order.
  // Throws: UserError for other shapes, and on all ranks where these together have fewer than two values a
  // feature.
  torch::Tensor forward(const torch::Tensor& input);

  torch::nn::BatchNormOptions options;
  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  void take(const Tensors& tensors);
  double count_batch();

  TensorCollectives* ranks_;
};
TORCH_MODULE(SyncBatchNorm);

// The same layers with SyncBatchNorm in the place of each BatchNorm1d, 2d and 3d. Parameters and buffers are
// shared with `layers`, so optimizers that were made before stay valid. Members of your own modules cannot be
// replaced; declare them as SyncBatchNorm instead.
torch::nn::Sequential convert_sync_batchnorm(const torch::nn::Sequential& layers, TensorCollectives& ranks);

}  // namespace farandole
