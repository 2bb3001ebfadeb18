// Element-wise reductions over memory of several ranks, vectorised for the processor they run on. Usable from
// any thread.
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

}  // namespace farandole
