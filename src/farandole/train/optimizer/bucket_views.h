// Tensors that lie in memory laid out as a bucket. Usable from any thread.
#pragma once

#include <torch/torch.h>

#include "farandole/base/bucket_plan.h"

namespace farandole {

// Zeros for the bucket's payload, in one piece.
torch::Tensor flat_tensor(const Bucket& bucket);

// The slot of `flat` as a tensor of the shape of `like`, and of its strides where these are dense. It keeps
// `flat` alive, but its storage is the slot alone, so that saving it saves no neighbours.
torch::Tensor slot_view(const torch::Tensor& flat, const BucketSlot& slot, const torch::Tensor& like);

// Whether both are one place in memory; undefined tensors are nowhere.
bool same_place(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace farandole
