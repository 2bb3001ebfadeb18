// Element-wise reductions over the memory of several ranks, and conversions between float32 and the 16-bit
// formats, vectorised for the processor that they run on. Usable from any thread.
#pragma once

#include <cstddef>
#include <span>

#include "farandole/base/dtype.h"
#include "farandole/comm/communicator.h"

namespace farandole {

// outputs[o][i] = op over k of inputs[k][i], for i < count and every o. Reduces in the order of `inputs`, so
// that equal inputs give equal bits; 16-bit floats are added up in float32 and rounded once; `average`
// divides by inputs.size(). Integers wrap; a NaN in any input is one in the result, also of min and max.
// There is an input; an output may be one of them, else nothing overlaps. Throws UserError as check_reduction
// does.
void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs, std::size_t count,
            DType dtype, ReduceOp op);

// out[i] = in[i] * factor, rounded once to nearest even; a NaN stays one, what exceeds the format's range
// becomes infinite. `dtype` is float16 or bfloat16, the type of `out`; nothing overlaps.
void narrow(const float* in, std::byte* out, std::size_t count, DType dtype, float factor = 1);
// out[i] = in[i] * factor; `dtype` is the type of `in`.
void widen(const std::byte* in, float* out, std::size_t count, DType dtype, float factor = 1);

}  // namespace farandole
