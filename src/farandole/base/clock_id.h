// Identifies the CLOCK_MONOTONIC of this process. Processes of one kernel share it unless they are
// in different time namespaces.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>

namespace farandole {

// Two processes with the same clock get equal values. Processes with different clocks get different values
// except by chance. 0 means unknown. Compare only values of programs of the same build.
std::uint32_t clock_id();

}  // namespace farandole
