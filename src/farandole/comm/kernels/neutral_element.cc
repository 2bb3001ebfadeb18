#include "farandole/comm/kernels/neutral_element.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "farandole/comm/kernels/float16.h"

namespace farandole {
namespace {

template <class T>
T neutral(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  constexpr T largest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  constexpr T least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  switch (op) {
    case ReduceOp::min:
      return largest;
    case ReduceOp::max:
      return least;
    case ReduceOp::product:
      return T(1);
    default:
      return T(0);
  }
}

template <class T>
void fill(void* data, std::size_t count, ReduceOp op) {
  if constexpr (std::is_arithmetic_v<T>) {
    std::fill_n(static_cast<T*>(data), count, neutral<T>(op));
  } else {
    T value{};
    from_float(neutral<float>(op), value);
    std::fill_n(static_cast<T*>(data), count, value);
  }
}

}  // namespace

void fill_neutral(void* data, std::size_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::float16:
      return fill<Float16>(data, count, op);
    case DType::bfloat16:
      return fill<BFloat16>(data, count, op);
    case DType::float32:
      return fill<float>(data, count, op);
    case DType::float64:
      return fill<double>(data, count, op);
    case DType::int32:
      return fill<std::int32_t>(data, count, op);
    case DType::int64:
      return fill<std::int64_t>(data, count, op);
    case DType::uint8:
      return fill<std::uint8_t>(data, count, op);
    case DType::boolean:
      return fill<bool>(data, count, op);
  }
}

}  // namespace farandole
