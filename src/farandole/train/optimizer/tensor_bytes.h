// Conversions between element types of LibTorch and Farandole.
// Thread safety: any thread may call this at any time.
#pragma once

#include <torch/types.h>

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

}  // namespace farandole
