// Reduces vectors that several ranks have on one GPU, for GPUs and, in tests, for the CPU. The result has
// the bits of reduce() in comm/kernels/kernels.h, except those of NaNs, if the compiler does not join
// products and sums.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farandole/base/dtype.h"
#include "farandole/comm/kernels/device_code.h"
#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/reduce_op.h"

namespace farandole {

// outputs[o][i] = op over k of inputs[k][i] * factor. An output may be one of the inputs.
struct PeerReduction {
  const std::byte* inputs[most_peers];
  std::byte* outputs[most_peers];
  std::uint32_t input_count;
  std::uint32_t output_count;
  std::uint64_t count;  // elements
  DType dtype;          // boolean: as uint8
  ReduceOp op;
  double factor;  // of floating-point elements
};

// How elements are stored, and the type with which they are reduced.
template <class Number>
struct PeerElement {
  using Stored = Number;
  using Value = Number;
  FARANDOLE_DEVICE static Value load(Stored stored) { return stored; }
  FARANDOLE_DEVICE static Stored store(Value value) { return value; }
};
template <class Half>
struct PeerHalf {
  using Stored = std::uint16_t;
  using Value = float;
  FARANDOLE_DEVICE static Value load(Stored stored) { return to_float(Half{stored}); }
  FARANDOLE_DEVICE static Stored store(Value value) {
    Half half{};
    from_float(value, half);
    return half.bits;
  }
};
template <>
struct PeerElement<Float16> : PeerHalf<Float16> {};
template <>
struct PeerElement<BFloat16> : PeerHalf<BFloat16> {};

template <class Value>
constexpr bool has_fractions = Value(1) / Value(2) != Value(0);

template <class Value, ReduceOp op>
FARANDOLE_DEVICE constexpr Value combine(Value a, Value b) {
  if constexpr (op == ReduceOp::product) return static_cast<Value>(a * b);
  if constexpr (op == ReduceOp::min) return a <= b || a != a ? a : b;  // a != a: a NaN
  if constexpr (op == ReduceOp::max) return a >= b || a != a ? a : b;
  return static_cast<Value>(a + b);
}

template <class Element, ReduceOp op>
struct PeerReducer {
  using Stored = typename Element::Stored;
  using Value = typename Element::Value;
  using Word [[gnu::may_alias]] = Stored;
  static constexpr std::uint64_t lanes = sizeof(DeviceVector) / sizeof(Stored);
  union Vector {
    DeviceVector whole;
    Stored lane[lanes];
  };

  const PeerReduction& job;

  FARANDOLE_DEVICE Value scaled(Stored stored) const {
    Value value = Element::load(stored);
    if constexpr (has_fractions<Value>)
      if (job.factor != 1) value *= static_cast<Value>(job.factor);
    return value;
  }
  FARANDOLE_DEVICE Stored finished(Value value) const {
    if constexpr (op == ReduceOp::average) value /= static_cast<Value>(job.input_count);
    return Element::store(value);
  }

  FARANDOLE_DEVICE bool aligned() const {
    std::uintptr_t addresses = 0;
    for (std::uint32_t k = 0; k < job.input_count; ++k)
      addresses |= reinterpret_cast<std::uintptr_t>(job.inputs[k]);
    for (std::uint32_t o = 0; o < job.output_count; ++o)
      addresses |= reinterpret_cast<std::uintptr_t>(job.outputs[o]);
    return addresses % sizeof(DeviceVector) == 0;
  }

  FARANDOLE_DEVICE void reduce_vector(std::uint64_t v) const {
    Value sums[lanes]{};
    for (std::uint32_t k = 0; k < job.input_count; ++k) {
      Vector in;
      in.whole = reinterpret_cast<const DeviceVector*>(job.inputs[k])[v];
      for (std::uint64_t i = 0; i < lanes; ++i)
        sums[i] = k == 0 ? scaled(in.lane[i]) : combine<Value, op>(sums[i], scaled(in.lane[i]));
    }
    Vector out;
    for (std::uint64_t i = 0; i < lanes; ++i) out.lane[i] = finished(sums[i]);
    for (std::uint32_t o = 0; o < job.output_count; ++o)
      reinterpret_cast<DeviceVector*>(job.outputs[o])[v] = out.whole;
  }

  FARANDOLE_DEVICE void reduce_element(std::uint64_t i) const {
    Value sum = scaled(reinterpret_cast<const Word*>(job.inputs[0])[i]);
    for (std::uint32_t k = 1; k < job.input_count; ++k)
      sum = combine<Value, op>(sum, scaled(reinterpret_cast<const Word*>(job.inputs[k])[i]));
    for (std::uint32_t o = 0; o < job.output_count; ++o)
      reinterpret_cast<Word*>(job.outputs[o])[i] = finished(sum);
  }
};

// What thread `thread` of `threads` does. Vectors for all operations would triple the compile time.
template <class Element, ReduceOp op>
FARANDOLE_DEVICE void reduce_elements(const PeerReduction& job, std::uint64_t thread, std::uint64_t threads) {
  const PeerReducer<Element, op> reducer{job};
  std::uint64_t done = 0;
  if constexpr (op == ReduceOp::sum || op == ReduceOp::average) {
    const std::uint64_t vectors = reducer.aligned() ? job.count / reducer.lanes : 0;
    for (std::uint64_t v = thread; v < vectors; v += threads) reducer.reduce_vector(v);
    done = vectors * reducer.lanes;
  }
  for (std::uint64_t i = done + thread; i < job.count; i += threads) reducer.reduce_element(i);
}

// Unsigned sums and products have the same bits as signed ones and may wrap around. Integers have no average.
template <class Signed, class Unsigned>
FARANDOLE_DEVICE void reduce_numbers(const PeerReduction& job, std::uint64_t thread, std::uint64_t threads) {
  using Sum = PeerElement<Unsigned>;
  using Order = PeerElement<Signed>;
  switch (job.op) {
    case ReduceOp::sum:
      return reduce_elements<Sum, ReduceOp::sum>(job, thread, threads);
    case ReduceOp::average:
      if constexpr (has_fractions<typename Sum::Value>)
        reduce_elements<Sum, ReduceOp::average>(job, thread, threads);
      return;
    case ReduceOp::min:
      return reduce_elements<Order, ReduceOp::min>(job, thread, threads);
    case ReduceOp::max:
      return reduce_elements<Order, ReduceOp::max>(job, thread, threads);
    case ReduceOp::product:
      return reduce_elements<Sum, ReduceOp::product>(job, thread, threads);
  }
}

FARANDOLE_DEVICE inline void reduce_peers(const PeerReduction& job, std::uint64_t thread,
                                          std::uint64_t threads) {
  switch (job.dtype) {
    case DType::float16:
      return reduce_numbers<Float16, Float16>(job, thread, threads);
    case DType::bfloat16:
      return reduce_numbers<BFloat16, BFloat16>(job, thread, threads);
    case DType::float32:
      return reduce_numbers<float, float>(job, thread, threads);
    case DType::float64:
      return reduce_numbers<double, double>(job, thread, threads);
    case DType::int32:
      return reduce_numbers<std::int32_t, std::uint32_t>(job, thread, threads);
    case DType::int64:
      return reduce_numbers<std::int64_t, std::uint64_t>(job, thread, threads);
    case DType::uint8:
    case DType::boolean:
      return reduce_numbers<std::uint8_t, std::uint8_t>(job, thread, threads);
  }
}

}  // namespace farandole
