// LibTorch's element types in Farandole's terms. Usable from any thread.
#pragma once

#include <torch/torch.h>

#include "farandole/base/dtype.h"

namespace farandole {

// Throw UserError for types that do not travel between ranks (complex, quantized, …).
DType dtype_of(const torch::Tensor& tensor);
torch::ScalarType scalar_type_of(DType dtype);

inline std::size_t bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
}

}  // namespace farandole
