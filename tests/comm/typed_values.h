// Values of every element type for tests of reductions, and the expected results.
#pragma once

#include <algorithm>
#include <cstring>

#include "farandole/comm/communicator.h"
#include "farandole/comm/kernels/float16.h"

namespace farandole {

// Element i of rank r in a case. Small integers, so that the result is exact for every type
// and order of summation.
inline int element(unsigned seed, int rank, std::size_t i) {
  return static_cast<int>(
             (seed * 7919u + static_cast<unsigned>(rank) * 104729u + static_cast<unsigned>(i) * 31u) % 3u) +
         1;
}

inline void store(std::byte* data, DType dtype, std::size_t i, double value) {
  const auto put = [&](auto typed) { std::memcpy(data + i * sizeof typed, &typed, sizeof typed); };
  switch (dtype) {
    case DType::float16: {
      Float16 half{};
      from_float(static_cast<float>(value), half);
      return put(half);
    }
    case DType::bfloat16: {
      BFloat16 half{};
      from_float(static_cast<float>(value), half);
      return put(half);
    }
    case DType::float32:
      return put(static_cast<float>(value));
    case DType::float64:
      return put(value);
    case DType::int32:
      return put(static_cast<std::int32_t>(value));
    case DType::int64:
      return put(static_cast<std::int64_t>(value));
    case DType::uint8:
      return put(static_cast<std::uint8_t>(value));
    case DType::boolean:
      return put(value > 1);
  }
}

inline double load(const std::byte* data, DType dtype, std::size_t i) {
  const auto get = [&](auto typed) {
    std::memcpy(&typed, data + i * sizeof typed, sizeof typed);
    return typed;
  };
  switch (dtype) {
    case DType::float16:
      return to_float(get(Float16{}));
    case DType::bfloat16:
      return to_float(get(BFloat16{}));
    case DType::float32:
      return get(float{});
    case DType::float64:
      return get(double{});
    case DType::int32:
      return get(std::int32_t{});
    case DType::int64:
      return static_cast<double>(get(std::int64_t{}));
    case DType::uint8:
      return get(std::uint8_t{});
    case DType::boolean:
      return get(bool{}) ? 1 : 0;
  }
  return 0;
}

inline double combine(ReduceOp op, double a, double b) {
  if (op == ReduceOp::min) return std::min(a, b);
  if (op == ReduceOp::max) return std::max(a, b);
  return op == ReduceOp::product ? a * b : a + b;
}

inline double reference(ReduceOp op, DType dtype, unsigned seed, int size, std::size_t i) {
  const bool logical = dtype == DType::boolean;
  double result = 0;
  for (int r = 0; r < size; ++r) {
    const double value = logical ? (element(seed, r, i) > 1 ? 1 : 0) : element(seed, r, i);
    result = r == 0 ? value : combine(op, result, value);
  }
  return op == ReduceOp::average ? result / size : result;
}

inline double tolerance(DType dtype) {
  return dtype == DType::bfloat16 ? 1e-2 : dtype == DType::float16 ? 2e-3 : 1e-6;
}

// The largest relative error of rounding to a floating-point type.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::bfloat16  ? 0x1p-8
         : dtype == DType::float16 ? 0x1p-11
         : dtype == DType::float32 ? 0x1p-24
                                   : 0x1p-53;
}

}  // namespace farandole
