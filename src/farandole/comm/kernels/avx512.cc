// The kernels for AVX-512 (x86-64-v4). Called only if the processor supports it.
#include <immintrin.h>

#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/kernels/vector_kernels.h"
#include "farandole/comm/kernels/vector_updates.h"

namespace farandole {
namespace {

struct Avx512 {
  static constexpr std::size_t bytes = 64;

  [[gnu::always_inline]] static __m512 from_float16(const std::byte* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  [[gnu::always_inline]] static void to_float16(__m512 lanes, std::byte* to) {
    const __m256i halves = _mm512_cvtps_ph(lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
  }
};

}  // namespace

constinit const KernelSet avx512_kernels = make_kernels<Avx512>("AVX-512");

}  // namespace farandole
