// Memory of this process alone, as a communicator's Buffer. Usable from any thread.
#pragma once

#include <cstddef>

#include "farandole/comm/communicator.h"

namespace farandole {

// Zeroed and 64-byte aligned. Throws std::bad_alloc.
Buffer private_memory(std::size_t bytes);

}  // namespace farandole
