#include "farandole/train/optimizer/tensor_bytes.h"

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
    default:
      throw UserError(
          std::string("tensors of type ") + torch::toString(tensor.scalar_type()) +
          " cannot be sent between ranks; convert them to float16, bfloat16, float32, float64, int32, "
          "int64, uint8 or bool");
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
  }
  return torch::kFloat32;
}

torch::Tensor tensor_of(Bytes bytes, at::IntArrayRef shape, torch::ScalarType type) {
  if (bytes.empty()) return torch::empty(shape, type);
  auto* const owned = new Bytes(std::move(bytes));
  return torch::from_blob(
      owned->data(), shape, [owned](void*) { delete owned; }, type);
}

}  // namespace farandole
