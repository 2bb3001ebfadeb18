// Element-wise reductions over the memory of several ranks, and conversions between float32 and the 16-bit
// formats, vectorized for the processor at run time.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <span>

#include "farandole/base/dtype.h"
#include "farandole/comm/communicator.h"

namespace farandole {

// outputs[o][i] = op over k of inputs[k][i], for i < count and every o. Reduces in the order of `inputs`, so
// equal inputs give equal bits. 16-bit floats are added in float32 and rounded once. `average` divides by
// inputs.size(). Integers wrap around. A NaN in any input gives a NaN, also for min and max. At least one
// input is required. An output may be one of the inputs; otherwise the buffers must not overlap.
// Throws: UserError as check_reduction() does.
void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs, std::size_t count,
            DType dtype, ReduceOp op);

// Multiplies each element by `factor`; only for floating-point types.
void scale(void* data, std::size_t count, DType dtype, double factor);

// As memcpy. For more than 2 KiB, glibc's memcpy uses `rep movsb`, which took 3 times as long on Zen 4.
void copy_bytes(void* to, const void* from, std::size_t bytes);

// out[i] = in[i] * factor, rounded once to nearest even. A NaN stays a NaN, and values outside the format's
// range become infinite. `dtype` is the type of `out`: float16 or bfloat16. The buffers must not overlap.
void narrow(const float* in, std::byte* out, std::size_t count, DType dtype, float factor = 1);
// out[i] = in[i] * factor; `dtype` is the type of `in`.
void widen(const std::byte* in, float* out, std::size_t count, DType dtype, float factor = 1);
// values[i] = bfloat16(values[i]) + narrowed[i]: the sum of two values that are both rounded to bfloat16, in
// float32. The buffers must not overlap.
void add_bfloat16(const std::byte* narrowed, float* values, std::size_t count);

}  // namespace farandole
