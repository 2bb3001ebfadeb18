// Finds NaNs and infinities in memory, as fast as it can be read.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <span>

#include "farandole/base/dtype.h"

namespace farandole {

// True if no number is a NaN or an infinity. Integers always are finite. `bytes` may have any alignment.
bool has_only_finite(std::span<const std::byte> bytes, DType dtype);

}  // namespace farandole
