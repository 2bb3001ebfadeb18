// The one clock that spans, steps and waits are measured with, and its identity.
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

// Reads CLOCK_REALTIME, the date. Units: nanoseconds since 1970.
inline std::int64_t real_time_ns() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return std::int64_t{time.tv_sec} * ns_per_second + time.tv_nsec;
}

// Returns the time since now_ns() returned `start_ns`. Units: seconds.
inline double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(now_ns() - start_ns) * 1e-9;
}

// Identifies the CLOCK_MONOTONIC of this process. Processes of one kernel share it unless they are in
// different time namespaces. Two processes with the same clock get equal values. Processes with
// different clocks get different values except by chance. 0 means unknown. Compare only values of
// programs of the same build.
std::uint32_t clock_id();

}  // namespace farandole
