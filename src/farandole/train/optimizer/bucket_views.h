// Tensors in memory with the layout of a bucket.
// Thread safety: any thread may call this at any time.
#pragma once

#include <torch/types.h>

#include "farandole/base/bucket_plan.h"

namespace farandole {

// Returns zeros for the bucket's payload in one tensor.
torch::Tensor flat_tensor(const Bucket& bucket, torch::Device device);

// Returns the slot of `flat` as a tensor with the shape of `like` and, if they are dense, its strides. The
// result keeps `flat` alive, but its storage is only the slot, so that saving it does not save neighbours.
torch::Tensor slot_view(const torch::Tensor& flat, const BucketSlot& slot, const torch::Tensor& like);

// Returns whether both tensors have the same memory; false for undefined tensors.
bool same_place(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace farandole
