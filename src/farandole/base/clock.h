// The one clock that spans, steps and waits are measured with.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <ctime>

namespace farandole {

inline constexpr std::int64_t ns_per_ms = 1'000'000;
inline constexpr std::int64_t ns_per_second = 1'000'000'000;

// Reads CLOCK_MONOTONIC, which all processes of one host share. Clocks of different hosts are unrelated.
// Units: nanoseconds.
inline std::int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * ns_per_second + time.tv_nsec;
}

inline double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(now_ns() - start_ns) * 1e-9;
}

}  // namespace farandole
