// Builds the table of an instruction set's kernels. The rules of comm/kernels/vector_kernels.h apply.
// Thread safety: any thread may call this at any time.
#pragma once

#include "farandole/comm/communicator.h"
#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/kernels/vector_kernels.h"

namespace farandole {

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
  using std::int32_t, std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t;
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
