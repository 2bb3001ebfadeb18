// Many numbers between float32 and the 16-bit formats at once, vectorised for the processor. Usable from any
// thread.
#pragma once

#include <cstddef>

#include "farandole/base/dtype.h"

namespace farandole {

// out[i] = in[i] * factor, rounded once to nearest even; a NaN stays one, what exceeds the format's range
// becomes infinite. `dtype` is float16 or bfloat16, the type of `out`; nothing overlaps.
void narrow(const float* in, std::byte* out, std::size_t count, DType dtype, float factor = 1);
// out[i] = in[i] * factor; `dtype` is the type of `in`.
void widen(const std::byte* in, float* out, std::size_t count, DType dtype, float factor = 1);

}  // namespace farandole
