// Tensors as bytes: their element types, and tensors in memory with the layout of a bucket.
// Thread safety: any thread may call this at any time.
#pragma once

#include <torch/types.h>

#include "farandole/base/bucket_plan.h"
#include "farandole/base/bytes.h"
#include "farandole/base/dtype.h"

namespace farandole {

// Throws: UserError if the type cannot be sent between ranks (complex, quantized, …).
DType dtype_of(const torch::Tensor& tensor);
torch::ScalarType scalar_type_of(DType dtype);

// A tensor of the CPU whose memory are these bytes.
torch::Tensor tensor_of(Bytes bytes, at::IntArrayRef shape, torch::ScalarType type);

inline std::size_t bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
}

// Returns `count` elements of a flat tensor, in its memory.
torch::Tensor elements(const torch::Tensor& flat, std::size_t begin, std::size_t count);

// Returns zeros for the bucket's payload in one tensor.
torch::Tensor flat_tensor(const Bucket& bucket, torch::Device device);

// Returns the slot of `flat` as a tensor with the shape of `like` and, if they are dense, its strides. The
// result keeps `flat` alive, but its storage is only the slot, so that saving it does not save neighbours.
torch::Tensor slot_view(const torch::Tensor& flat, const BucketSlot& slot, const torch::Tensor& like);

// Returns whether both tensors have the same memory; false for undefined tensors.
bool same_place(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace farandole
