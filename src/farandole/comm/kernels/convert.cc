#include "farandole/comm/kernels/convert.h"

#include "farandole/comm/kernels/kernel_set.h"

namespace farandole {

void narrow(const float* in, std::byte* out, std::size_t count, DType dtype, float factor) {
  const auto& kernels = *kernel_sets().front();
  const auto convert = dtype == DType::float16 ? kernels.to_float16 : kernels.to_bfloat16;
  convert(reinterpret_cast<const std::byte*>(in), out, count, factor);
}

void widen(const std::byte* in, float* out, std::size_t count, DType dtype, float factor) {
  const auto& kernels = *kernel_sets().front();
  const auto convert = dtype == DType::float16 ? kernels.from_float16 : kernels.from_bfloat16;
  convert(in, reinterpret_cast<std::byte*>(out), count, factor);
}

}  // namespace farandole
