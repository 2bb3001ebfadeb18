// The kernels, written once with the compiler's vector extension, and the table of those of an instruction
// set. Each file that includes this is compiled for one instruction set.
// Thread safety: any thread may call this at any time.
//
// All functions depend on the parameter `Isa`, a type in the unnamed namespace of the including file, or are
// always inlined. They call no inline function of another header. So nothing here has external linkage, and
// the linker cannot choose code for a newer processor for another file.
//
// A unit is one vector in memory. A unit of 16-bit elements is converted to two vectors of float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "farandole/comm/communicator.h"
#include "farandole/comm/kernels/kernel_set.h"

namespace farandole {

template <class T, std::size_t bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(bytes)));
};
template <class Isa, class T>
using Vector = typename VectorOf<T, Isa::bytes>::type;

// Vectors at any address. With memcpy, GCC 12 would keep 256-bit vectors on the stack.
template <class T, std::size_t bytes>
struct VectorInMemory {
  typedef T type __attribute__((vector_size(bytes), aligned(1), may_alias));
};
template <class T, std::size_t bytes>
[[gnu::always_inline]] inline typename VectorOf<T, bytes>::type load_vector(const std::byte* from) {
  return *reinterpret_cast<const typename VectorInMemory<T, bytes>::type*>(from);
}
template <class T, std::size_t bytes>
[[gnu::always_inline]] inline void store_vector(typename VectorOf<T, bytes>::type value, std::byte* to) {
  *reinterpret_cast<typename VectorInMemory<T, bytes>::type*>(to) = value;
}

// A unit of numbers that need no conversion.
template <class Isa, class T>
struct Plain {
  using Lanes = Vector<Isa, T>;
  static constexpr std::size_t element_bytes = sizeof(T);
  static constexpr int parts = 1;

  [[gnu::always_inline]] static void load(const std::byte* from, Lanes* lanes) {
    *lanes = load_vector<T, Isa::bytes>(from);
  }
  [[gnu::always_inline]] static void store(const Lanes* lanes, std::byte* to) {
    store_vector<T, Isa::bytes>(*lanes, to);
  }
};

// Numbers at even and at odd positions are in separate vectors. A bfloat16 is the upper half of a float32, so
// loading and storing need no permutation.
template <class Isa>
struct BFloat16Unit {
  using Lanes = Vector<Isa, float>;
  using Bits = Vector<Isa, std::uint32_t>;
  static constexpr std::size_t element_bytes = 2;
  static constexpr int parts = 2;

  [[gnu::always_inline]] static void load(const std::byte* from, Lanes* lanes) {
    const Bits pairs = load_vector<std::uint32_t, Isa::bytes>(from);
    lanes[0] = (Lanes)(pairs << 16);
    lanes[1] = (Lanes)(pairs & 0xffff0000u);
  }
  [[gnu::always_inline]] static void store(const Lanes* lanes, std::byte* to) {
    store_vector<std::uint32_t, Isa::bytes>(rounded(lanes[0]) >> 16 | (rounded(lanes[1]) & 0xffff0000u), to);
  }
  // Rounds to nearest even in the upper half. A NaN stays a NaN.
  [[gnu::always_inline]] static Bits rounded(Lanes value) {
    const Bits bits = (Bits)value;
    return value != value ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  }
};

template <class Isa>
struct Float16Unit {
  using Lanes = Vector<Isa, float>;
  static constexpr std::size_t element_bytes = 2;
  static constexpr int parts = 2;

  [[gnu::always_inline]] static void load(const std::byte* from, Lanes* lanes) {
    lanes[0] = Isa::from_float16(from);
    lanes[1] = Isa::from_float16(from + Isa::bytes / 2);
  }
  [[gnu::always_inline]] static void store(const Lanes* lanes, std::byte* to) {
    Isa::to_float16(lanes[0], to);
    Isa::to_float16(lanes[1], to + Isa::bytes / 2);
  }
};

struct SumOf {
  template <class Lanes>
  [[gnu::always_inline]] static Lanes apply(Lanes a, Lanes b) {
    return a + b;
  }
};
struct ProductOf {
  template <class Lanes>
  [[gnu::always_inline]] static Lanes apply(Lanes a, Lanes b) {
    return a * b;
  }
};
// a != a is true for a NaN, so a NaN is returned.
struct MinOf {
  template <class Lanes>
  [[gnu::always_inline]] static Lanes apply(Lanes a, Lanes b) {
    return ((a <= b) | (a != a)) ? a : b;
  }
};
struct MaxOf {
  template <class Lanes>
  [[gnu::always_inline]] static Lanes apply(Lanes a, Lanes b) {
    return ((a >= b) | (a != a)) ? a : b;
  }
};

struct AndOf {
  template <class Lanes>
  [[gnu::always_inline]] static Lanes apply(Lanes a, Lanes b) {
    return a & b;
  }
};
struct OrOf {
  template <class Lanes>
  [[gnu::always_inline]] static Lanes apply(Lanes a, Lanes b) {
    return a | b;
  }
};

struct Unchanged {
  explicit Unchanged(std::size_t) {}
  template <class Lanes>
  [[gnu::always_inline]] Lanes operator()(Lanes value) const {
    return value;
  }
};
template <class T>
struct DividedBy {
  explicit DividedBy(std::size_t count) : divisor(static_cast<T>(count)) {}
  template <class Lanes>
  [[gnu::always_inline]] Lanes operator()(Lanes value) const {
    return value / divisor;
  }
  T divisor;
};
// The same for powers of two, whose reciprocals are exact. It is much faster if the data is in the cache.
template <class T>
struct MultipliedBy {
  explicit MultipliedBy(std::size_t count) : factor(T{1} / static_cast<T>(count)) {}
  template <class Lanes>
  [[gnu::always_inline]] Lanes operator()(Lanes value) const {
    return value * factor;
  }
  T factor;
};

template <class Isa, class Unit, class Op, class Finish>
struct Reduction {
  using Lanes = typename Unit::Lanes;
  static constexpr int at_once = 4;  // number of units, which hides the latency of loads
  static constexpr std::size_t unit_elements = Isa::bytes / Unit::element_bytes;

  const std::byte* const* inputs;
  std::byte* const* outputs;
  std::size_t inputs_count;
  std::size_t outputs_count;
  Finish finish;

  template <int units>
  [[gnu::always_inline]] void step(std::size_t offset) const {
    Lanes result[units * Unit::parts];
    for (int u = 0; u < units; ++u) Unit::load(inputs[0] + offset + u * Isa::bytes, result + u * Unit::parts);
    for (std::size_t k = 1; k < inputs_count; ++k)
      for (int u = 0; u < units; ++u) {
        Lanes next[Unit::parts];
        Unit::load(inputs[k] + offset + u * Isa::bytes, next);
        for (int p = 0; p < Unit::parts; ++p)
          result[u * Unit::parts + p] = Op::apply(result[u * Unit::parts + p], next[p]);
      }
    for (auto& lanes : result) lanes = finish(lanes);
    for (std::size_t o = 0; o < outputs_count; ++o)
      for (int u = 0; u < units; ++u)
        Unit::store(result + u * Unit::parts, outputs[o] + offset + u * Isa::bytes);
  }

  // Reduces less than one unit through copies.
  void rest(std::size_t offset, std::size_t bytes) const {
    alignas(Isa::bytes) std::byte unit[Isa::bytes] = {};
    Lanes result[Unit::parts];
    __builtin_memcpy(unit, inputs[0] + offset, bytes);
    Unit::load(unit, result);
    for (std::size_t k = 1; k < inputs_count; ++k) {
      Lanes next[Unit::parts];
      __builtin_memcpy(unit, inputs[k] + offset, bytes);
      Unit::load(unit, next);
      for (int p = 0; p < Unit::parts; ++p) result[p] = Op::apply(result[p], next[p]);
    }
    for (auto& lanes : result) lanes = finish(lanes);
    Unit::store(result, unit);
    for (std::size_t o = 0; o < outputs_count; ++o) __builtin_memcpy(outputs[o] + offset, unit, bytes);
  }

  [[gnu::always_inline]] void run(std::size_t count) const {
    const std::size_t bytes = count * Unit::element_bytes;
    std::size_t offset = 0;
    for (; offset + at_once * Isa::bytes <= bytes; offset += at_once * Isa::bytes) step<at_once>(offset);
    for (; offset + Isa::bytes <= bytes; offset += Isa::bytes) step<1>(offset);
    if (offset < bytes) rest(offset, bytes - offset);
  }
};

// Copies of the pointers and known counts let the compiler keep both in registers. Otherwise, stores through
// std::byte could change the caller's arrays.
template <class Isa, class Unit, class Op, class Finish, std::size_t ins, std::size_t outs>
void reduce_fixed(const std::byte* const* inputs, std::byte* const* outputs, std::size_t count) {
  const std::byte* from[ins];
  std::byte* to[outs];
  for (std::size_t k = 0; k < ins; ++k) from[k] = inputs[k];
  for (std::size_t k = 0; k < outs; ++k) to[k] = outputs[k];
  const Reduction<Isa, Unit, Op, Finish> reduction{from, to, ins, outs, Finish(ins)};
  reduction.run(count);
}

// Known counts only for sums and averages: all ranks' memory in place, or staging areas into one output.
// Known counts for all operations would triple the compile time.
template <class Isa, class Unit, class Op, class Finish>
void reduce_any(const std::byte* const* inputs, std::size_t inputs_count, std::byte* const* outputs,
                std::size_t outputs_count, std::size_t count) {
  [[maybe_unused]] const auto known = [&](auto ins, auto outs) {
    if (inputs_count != ins || outputs_count != outs) return false;
    reduce_fixed<Isa, Unit, Op, Finish, ins, outs>(inputs, outputs, count);
    return true;
  };
  using std::integral_constant;
  using std::size_t;
  if constexpr (std::is_same_v<Op, SumOf>) {
    if (known(integral_constant<size_t, 2>(), integral_constant<size_t, 2>())) return;
    if (known(integral_constant<size_t, 3>(), integral_constant<size_t, 3>())) return;
    if (known(integral_constant<size_t, 4>(), integral_constant<size_t, 4>())) return;
    if (known(integral_constant<size_t, 1>(), integral_constant<size_t, 1>())) return;
    if (known(integral_constant<size_t, 2>(), integral_constant<size_t, 1>())) return;
    if (known(integral_constant<size_t, 3>(), integral_constant<size_t, 1>())) return;
  }
  const Reduction<Isa, Unit, Op, Finish> reduction{inputs, outputs, inputs_count, outputs_count,
                                                   Finish(inputs_count)};
  reduction.run(count);
}

template <class Isa, class Unit, class T>
void average_any(const std::byte* const* inputs, std::size_t inputs_count, std::byte* const* outputs,
                 std::size_t outputs_count, std::size_t count) {
  const bool power_of_two = (inputs_count & (inputs_count - 1)) == 0;
  const auto run = power_of_two ? reduce_any<Isa, Unit, SumOf, MultipliedBy<T>>
                                : reduce_any<Isa, Unit, SumOf, DividedBy<T>>;
  run(inputs, inputs_count, outputs, outputs_count, count);
}

// float32, bfloat16 and float16 in memory order, as two vectors of float32.
template <class Isa>
struct FloatPair {
  using Lanes = Vector<Isa, float>;
  static constexpr std::size_t element_bytes = 4;

  [[gnu::always_inline]] static void load(const std::byte* from, Lanes* lanes) {
    lanes[0] = load_vector<float, Isa::bytes>(from);
    lanes[1] = load_vector<float, Isa::bytes>(from + Isa::bytes);
  }
  [[gnu::always_inline]] static void store(const Lanes* lanes, std::byte* to) {
    store_vector<float, Isa::bytes>(lanes[0], to);
    store_vector<float, Isa::bytes>(lanes[1], to + Isa::bytes);
  }
};

template <class Isa>
struct BFloat16InOrder {
  using Lanes = Vector<Isa, float>;
  using Bits = Vector<Isa, std::uint32_t>;
  static constexpr std::size_t half = Isa::bytes / 2;
  using Halves = typename VectorOf<std::uint16_t, half>::type;
  static constexpr std::size_t element_bytes = 2;

  [[gnu::always_inline]] static void load(const std::byte* from, Lanes* lanes) {
    for (int p = 0; p < 2; ++p) {
      const Halves halves = load_vector<std::uint16_t, half>(from + p * half);
      lanes[p] = (Lanes)(__builtin_convertvector(halves, Bits) << 16);
    }
  }
  [[gnu::always_inline]] static void store(const Lanes* lanes, std::byte* to) {
    for (int p = 0; p < 2; ++p) {
      const Halves halves = __builtin_convertvector(BFloat16Unit<Isa>::rounded(lanes[p]) >> 16, Halves);
      store_vector<std::uint16_t, half>(halves, to + p * half);
    }
  }
};

// Calls Step::step for as many elements as two vectors of float32 have. The rest passes through copies.
template <class Isa, class Step, class... More>
void for_all_elements(const std::byte* in, std::byte* out, std::size_t count, More... more) {
  constexpr std::size_t elements = 2 * Isa::bytes / sizeof(float);
  constexpr std::size_t in_bytes = Step::In::element_bytes, out_bytes = Step::Out::element_bytes;
  std::size_t i = 0;
  for (; i + elements <= count; i += elements) Step::step(in + i * in_bytes, out + i * out_bytes, more...);
  if (i == count) return;
  alignas(Isa::bytes) std::byte from[elements * in_bytes] = {};
  alignas(Isa::bytes) std::byte to[elements * out_bytes] = {};
  __builtin_memcpy(from, in + i * in_bytes, (count - i) * in_bytes);
  __builtin_memcpy(to, out + i * out_bytes, (count - i) * out_bytes);
  Step::step(from, to, more...);
  __builtin_memcpy(out + i * out_bytes, to, (count - i) * out_bytes);
}

template <class Isa, class From, class To>
struct Conversion {
  using In = From;
  using Out = To;

  [[gnu::always_inline]] static void step(const std::byte* from, std::byte* to, float factor) {
    Vector<Isa, float> lanes[2];
    From::load(from, lanes);
    lanes[0] *= factor;
    lanes[1] *= factor;
    To::store(lanes, to);
  }
};

// Rounds values of this rank as those that came as bfloat16, and adds both in one pass.
template <class Isa>
struct AddBFloat16 {
  using In = BFloat16InOrder<Isa>;
  using Out = FloatPair<Isa>;
  using Lanes = Vector<Isa, float>;

  [[gnu::always_inline]] static void step(const std::byte* narrowed, std::byte* values) {
    Lanes own[2], other[2];
    Out::load(values, own);
    In::load(narrowed, other);
    for (int p = 0; p < 2; ++p) own[p] = (Lanes)(BFloat16Unit<Isa>::rounded(own[p]) & 0xffff0000u) + other[p];
    Out::store(own, values);
  }
};

template <class Isa, class Unit, class Arithmetic>
constexpr void set_reductions(ReduceKernel (&kernels)[KernelSet::ops]) {
  kernels[static_cast<int>(ReduceOp::sum)] = reduce_any<Isa, Unit, SumOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::average)] = average_any<Isa, Unit, Arithmetic>;
  kernels[static_cast<int>(ReduceOp::min)] = reduce_any<Isa, Unit, MinOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::max)] = reduce_any<Isa, Unit, MaxOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::product)] = reduce_any<Isa, Unit, ProductOf, Unchanged>;
}

// Unsigned sums and products have the same bits as signed ones and may wrap around.
template <class Isa, class Signed, class Unsigned>
constexpr void set_integer_reductions(ReduceKernel (&kernels)[KernelSet::ops]) {
  kernels[static_cast<int>(ReduceOp::sum)] = reduce_any<Isa, Plain<Isa, Unsigned>, SumOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::min)] = reduce_any<Isa, Plain<Isa, Signed>, MinOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::max)] = reduce_any<Isa, Plain<Isa, Signed>, MaxOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::product)] = reduce_any<Isa, Plain<Isa, Unsigned>, ProductOf, Unchanged>;
}

template <class Isa>
constexpr KernelSet make_kernel_set(const char* instructions) {
  using std::int16_t, std::int32_t, std::int64_t, std::int8_t;
  using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;
  KernelSet set;
  set.instructions = instructions;
  const auto of = [&set](DType dtype) -> auto& {
    return set.reduce[static_cast<int>(dtype)];
  };
  set_reductions<Isa, Float16Unit<Isa>, float>(of(DType::float16));
  set_reductions<Isa, BFloat16Unit<Isa>, float>(of(DType::bfloat16));
  set_reductions<Isa, Plain<Isa, float>, float>(of(DType::float32));
  set_reductions<Isa, Plain<Isa, double>, double>(of(DType::float64));
  set_integer_reductions<Isa, int32_t, uint32_t>(of(DType::int32));
  set_integer_reductions<Isa, int64_t, uint64_t>(of(DType::int64));
  set_integer_reductions<Isa, uint8_t, uint8_t>(of(DType::uint8));
  set_integer_reductions<Isa, int8_t, uint8_t>(of(DType::int8));
  set_integer_reductions<Isa, int16_t, uint16_t>(of(DType::int16));
  auto& boolean = of(DType::boolean);
  boolean[static_cast<int>(ReduceOp::min)] = reduce_any<Isa, Plain<Isa, uint8_t>, AndOf, Unchanged>;
  boolean[static_cast<int>(ReduceOp::max)] = reduce_any<Isa, Plain<Isa, uint8_t>, OrOf, Unchanged>;
  boolean[static_cast<int>(ReduceOp::product)] = boolean[static_cast<int>(ReduceOp::min)];
  set.to_float16 = for_all_elements<Isa, Conversion<Isa, FloatPair<Isa>, Float16Unit<Isa>>>;
  set.to_bfloat16 = for_all_elements<Isa, Conversion<Isa, FloatPair<Isa>, BFloat16InOrder<Isa>>>;
  set.from_float16 = for_all_elements<Isa, Conversion<Isa, Float16Unit<Isa>, FloatPair<Isa>>>;
  set.from_bfloat16 = for_all_elements<Isa, Conversion<Isa, BFloat16InOrder<Isa>, FloatPair<Isa>>>;
  set.add_bfloat16 = for_all_elements<Isa, AddBFloat16<Isa>>;
  return set;
}

}  // namespace farandole
