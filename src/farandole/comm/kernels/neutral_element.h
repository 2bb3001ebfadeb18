// The values that ranks without data contribute to a reduction.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>

#include "farandole/comm/communicator.h"

namespace farandole {

// Fills `data` with the value that does not change the result of the other ranks.
void fill_neutral(void* data, std::size_t count, DType dtype, ReduceOp op);

}  // namespace farandole
