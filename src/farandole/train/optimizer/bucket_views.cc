#include "farandole/train/optimizer/bucket_views.h"

#include "farandole/train/optimizer/tensor_bytes.h"

namespace farandole {

torch::Tensor flat_tensor(const Bucket& bucket, torch::Device device) {
  const auto elements = static_cast<std::int64_t>(bucket.payload);
  if (!device.is_cpu())
    return torch::zeros({elements}, torch::dtype(scalar_type_of(bucket.dtype)).device(device));
  // In huge pages, because each step updates all of it, and each snapshot copies it.
  return tensor_of(Bytes(bucket.payload * size_of(bucket.dtype), std::byte{0}), {elements},
                   scalar_type_of(bucket.dtype));
}

torch::Tensor slot_view(const torch::Tensor& flat, const BucketSlot& slot, const torch::Tensor& like) {
  auto* const first = static_cast<std::byte*>(flat.data_ptr()) + slot.offset * flat.element_size();
  const auto keep_alive = [flat](void*) {};
  const auto& options = flat.options().requires_grad(false);
  if (!like.is_non_overlapping_and_dense()) return torch::from_blob(first, like.sizes(), keep_alive, options);
  return torch::from_blob(first, like.sizes(), like.strides(), keep_alive, options);
}

bool same_place(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) return false;
  if (a.is_same(b)) return true;
  return a.layout() == torch::kStrided && b.layout() == torch::kStrided && a.data_ptr() == b.data_ptr() &&
         a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

}  // namespace farandole
