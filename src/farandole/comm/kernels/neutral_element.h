// What ranks that have nothing to contribute put into a reduction. Usable from any thread.
#pragma once

#include <cstddef>

#include "farandole/comm/communicator.h"

namespace farandole {

// Fills `data` with the value that leaves the reduction of the others as it is.
void fill_neutral(void* data, std::size_t count, DType dtype, ReduceOp op);

}  // namespace farandole
