#include "farandole/train/tensor_bytes.h"

#include <string>
#include <utility>

#include "farandole/base/error.h"

namespace farandole {

DType dtype_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat16:
      return DType::float16;
    case torch::kBFloat16:
      return DType::bfloat16;
    case torch::kFloat32:
      return DType::float32;
    case torch::kFloat64:
      return DType::float64;
    case torch::kInt32:
      return DType::int32;
    case torch::kInt64:
      return DType::int64;
    case torch::kUInt8:
      return DType::uint8;
    case torch::kBool:
      return DType::boolean;
    case torch::kInt8:
      return DType::int8;
    case torch::kInt16:
      return DType::int16;
    default:
      throw UserError(
          std::string("tensors of type ") + torch::toString(tensor.scalar_type()) +
          " cannot be sent between ranks; convert them to float16, bfloat16, float32, float64, int8, "
          "int16, int32, int64, uint8 or bool");
  }
}

torch::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return torch::kFloat16;
    case DType::bfloat16:
      return torch::kBFloat16;
    case DType::float32:
      return torch::kFloat32;
    case DType::float64:
      return torch::kFloat64;
    case DType::int32:
      return torch::kInt32;
    case DType::int64:
      return torch::kInt64;
    case DType::uint8:
      return torch::kUInt8;
    case DType::boolean:
      return torch::kBool;
    case DType::int8:
      return torch::kInt8;
    case DType::int16:
      return torch::kInt16;
  }
  return torch::kFloat32;
}

torch::Tensor tensor_of(Bytes bytes, at::IntArrayRef shape, torch::ScalarType type) {
  if (bytes.empty()) return torch::empty(shape, type);
  auto* const owned = new Bytes(std::move(bytes));
  return torch::from_blob(
      owned->data(), shape, [owned](void*) { delete owned; }, type);
}

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

torch::Tensor elements(const torch::Tensor& flat, std::size_t begin, std::size_t count) {
  return flat.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count));
}

bool same_place(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) return false;
  if (a.is_same(b)) return true;
  return a.layout() == torch::kStrided && b.layout() == torch::kStrided && a.data_ptr() == b.data_ptr() &&
         a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

}  // namespace farandole
