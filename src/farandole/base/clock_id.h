// Which processes share a CLOCK_MONOTONIC: those of one kernel, but for time namespaces. Usable from any
// thread.
#pragma once

#include <cstdint>

namespace farandole {

// Equal where the clock is the same, different but for chance where it is not; 0: unknown. For programs of
// one build.
std::uint32_t clock_id();

}  // namespace farandole
