// Values of every element type for tests of reductions, and the expected results.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "farandole/comm/communicator.h"
#include "farandole/comm/kernels/float16.h"

namespace farandole {

// Element i of rank r in a case. Small integers, so that the result is exact for every type
// and order of summation. They repeat after three elements, so that large inputs are filled and checked by
// memcpy and memcmp, also in a build with sanitizers.
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
    case DType::int8:
      return put(static_cast<std::int8_t>(static_cast<int>(value)));
    case DType::int16:
      return put(static_cast<std::int16_t>(static_cast<int>(value)));
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
    case DType::int8:
      return get(std::int8_t{});
    case DType::int16:
      return get(std::int16_t{});
    case DType::boolean:
      return get(bool{}) ? 1 : 0;
  }
  return 0;
}

// What is left of a whole number in a small integer type.
inline double wrapped(DType dtype, double value) {
  if (dtype == DType::uint8) return static_cast<std::uint8_t>(static_cast<std::int64_t>(value));
  if (dtype == DType::int8) return static_cast<std::int8_t>(static_cast<std::int64_t>(value));
  if (dtype == DType::int16) return static_cast<std::int16_t>(static_cast<std::int64_t>(value));
  return value;
}

inline double combine(ReduceOp op, double a, double b) {
  if (op == ReduceOp::min) return std::min(a, b);
  if (op == ReduceOp::max) return std::max(a, b);
  return op == ReduceOp::product ? a * b : a + b;
}

// Writes `count` elements of a rank, from element `first`.
inline void fill(std::byte* data, DType dtype, std::size_t count, unsigned seed, int rank,
                 std::size_t first = 0) {
  for (std::size_t i = 0; i < std::min<std::size_t>(count, 3); ++i)
    store(data, dtype, i, element(seed, rank, first + i));
  const std::size_t bytes = count * size_of(dtype);
  for (std::size_t done = 3 * size_of(dtype); done < bytes; done *= 2)
    std::memcpy(data + done, data, std::min(done, bytes - done));
}

// The results of three elements from `first`; those of all others repeat them.
inline std::array<double, 3> reference(ReduceOp op, DType dtype, unsigned seed, int size,
                                       std::size_t first = 0) {
  const bool logical = dtype == DType::boolean;
  std::array<double, 3> results{};
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (int r = 0; r < size; ++r) {
      const double value = logical ? (element(seed, r, first + i) > 1 ? 1 : 0) : element(seed, r, first + i);
      results[i] = r == 0 ? value : wrapped(dtype, combine(op, results[i], value));
    }
    if (op == ReduceOp::average) results[i] /= size;
  }
  return results;
}

inline double tolerance(DType dtype) {
  return dtype == DType::bfloat16 ? 1e-2 : dtype == DType::float16 ? 2e-3 : 1e-6;
}

// The first of `count` elements that is not near what `expected` repeats; `count` if all are.
inline std::size_t first_wrong(const std::byte* data, DType dtype, std::size_t count,
                               const std::array<double, 3>& expected) {
  const std::size_t period = 3 * size_of(dtype), bytes = count * size_of(dtype);
  const bool repeats = bytes > period && std::memcmp(data, data + period, bytes - period) == 0;
  for (std::size_t i = 0; i < (repeats ? 3 : count); ++i) {
    const double right = expected[i % 3];
    if (!(std::abs(load(data, dtype, i) - right) <= std::abs(right) * tolerance(dtype))) return i;
  }
  return count;
}

// The largest relative error of rounding to a floating-point type.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::bfloat16  ? 0x1p-8
         : dtype == DType::float16 ? 0x1p-11
         : dtype == DType::float32 ? 0x1p-24
                                   : 0x1p-53;
}

}  // namespace farandole
