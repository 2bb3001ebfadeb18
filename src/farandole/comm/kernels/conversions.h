// The conversion kernels of comm/kernels/kernels.h. The rules of comm/kernels/vector_kernels.h apply.
#pragma once

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

template <class Isa, class From, class To>
struct Conversion {
  static constexpr std::size_t elements = 2 * Isa::bytes / sizeof(float);

  [[gnu::always_inline]] static void step(const std::byte* from, std::byte* to, float factor) {
    Vector<Isa, float> lanes[2];
    From::load(from, lanes);
    lanes[0] *= factor;
    lanes[1] *= factor;
    To::store(lanes, to);
  }

  static void run(const std::byte* in, std::byte* out, std::size_t count, float factor) {
    std::size_t i = 0;
    for (; i + elements <= count; i += elements)
      step(in + i * From::element_bytes, out + i * To::element_bytes, factor);
    if (i == count) return;
    alignas(Isa::bytes) std::byte from[elements * From::element_bytes] = {};
    alignas(Isa::bytes) std::byte to[elements * To::element_bytes];
    __builtin_memcpy(from, in + i * From::element_bytes, (count - i) * From::element_bytes);
    step(from, to, factor);
    __builtin_memcpy(out + i * To::element_bytes, to, (count - i) * To::element_bytes);
  }
};

}  // namespace farandole
