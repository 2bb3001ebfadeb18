// The kernels for every processor. They use vectors of 128 bits, as SSE2 and NEON do.
#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/kernels/vector_kernels.h"
#include "farandole/comm/kernels/vector_updates.h"

namespace farandole {
namespace {

// Uses the same steps as comm/kernels/float16.h.
struct Portable {
  static constexpr std::size_t bytes = 16;
  using Floats = VectorOf<float, bytes>::type;
  using Bits = VectorOf<std::uint32_t, bytes>::type;
  using Halves = VectorOf<std::uint16_t, bytes / 2>::type;

  [[gnu::always_inline]] static Floats from_float16(const std::byte* from) {
    const Halves halves = load_vector<std::uint16_t, bytes / 2>(from);
    const Bits bits = __builtin_convertvector(halves, Bits);
    const Bits magnitude = bits & 0x7fffu;
    const Bits finite = (Bits)((Floats)(magnitude << 13) * 0x1p112f);
    const Bits special = (magnitude << 13) | 0x7f800000u;
    return (Floats)((bits & 0x8000u) << 16 | (magnitude >= 0x7c00u ? special : finite));
  }
  [[gnu::always_inline]] static void to_float16(Floats lanes, std::byte* to) {
    const Bits bits = (Bits)lanes;
    const Bits magnitude = bits & 0x7fffffffu;
    const Bits normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const Bits subnormal = (Bits)((Floats)magnitude + 0.5f) - 0x3f000000u;
    const Bits large = magnitude > 0x7f800000u ? Bits{} + 0x7e00u : Bits{} + 0x7c00u;
    const Bits finite = magnitude < 0x38800000u ? subnormal : normal;
    const Bits half = (magnitude >= 0x477ff000u ? large : finite) | ((bits >> 16) & 0x8000u);
    store_vector<std::uint16_t, bytes / 2>(__builtin_convertvector(half, Halves), to);
  }
};

}  // namespace

constinit const KernelSet portable_kernels = make_kernels<Portable>("128-bit vectors");

}  // namespace farandole
