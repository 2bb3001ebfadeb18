#include "farandole/comm/kernels/kernels.h"

#include "farandole/base/error.h"
#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/kernels/kernel_set.h"

namespace farandole {
namespace {

template <class T>
void scale_16_bit(T* values, std::size_t count, float factor) {
  for (std::size_t i = 0; i < count; ++i) from_float(to_float(values[i]) * factor, values[i]);
}

}  // namespace

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs, std::size_t count,
            DType dtype, ReduceOp op) {
  check_reduction(op, dtype);
  const auto kernel =
      kernel_sets().front()->reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
  kernel(inputs.data(), inputs.size(), outputs.data(), outputs.size(), count);
}

void scale(void* data, std::size_t count, DType dtype, double factor) {
  switch (dtype) {
    case DType::float16:
      return scale_16_bit(static_cast<Float16*>(data), count, static_cast<float>(factor));
    case DType::bfloat16:
      return scale_16_bit(static_cast<BFloat16*>(data), count, static_cast<float>(factor));
    case DType::float32: {
      auto* values = static_cast<float*>(data);
      for (std::size_t i = 0; i < count; ++i) values[i] *= static_cast<float>(factor);
      return;
    }
    case DType::float64: {
      auto* values = static_cast<double*>(data);
      for (std::size_t i = 0; i < count; ++i) values[i] *= factor;
      return;
    }
    default:
      throw UserError("only floating-point types can be scaled");
  }
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  const auto* const input = static_cast<const std::byte*>(from);
  auto* const output = static_cast<std::byte*>(to);
  reduce({&input, 1}, {&output, 1}, bytes, DType::uint8, ReduceOp::sum);
}

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

void add_bfloat16(const std::byte* narrowed, float* values, std::size_t count) {
  kernel_sets().front()->add_bfloat16(narrowed, reinterpret_cast<std::byte*>(values), count);
}

}  // namespace farandole
