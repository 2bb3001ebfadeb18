// The kernels for AVX2 and F16C (x86-64-v3). Called only if the processor supports them.
#include <immintrin.h>

#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/kernels/vector_kernels.h"
#include "farandole/comm/kernels/vector_updates.h"

namespace farandole {
namespace {

struct Avx2 {
  static constexpr std::size_t bytes = 32;

  [[gnu::always_inline]] static __m256 from_float16(const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static void to_float16(__m256 lanes, std::byte* to) {
    const __m128i halves = _mm256_cvtps_ph(lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  }
};

}  // namespace

constinit const KernelSet avx2_kernels = make_kernels<Avx2>("AVX2");

}  // namespace farandole
