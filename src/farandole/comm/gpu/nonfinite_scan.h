// Finds the first NaN or infinity of a vector, for GPUs and, in tests, for the CPU.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farandole/comm/kernels/device_code.h"

namespace farandole {

// A number is not finite if and only if all bits of its exponent are ones.
struct NonfiniteScan {
  const void* data;            // aligned to 16 bytes
  std::uint64_t count;         // elements
  std::uint32_t element_size;  // 2, 4 or 8
  std::uint64_t exponent;      // the bits of the exponent of one element
  std::uint64_t* first;        // lowered to the number of the first one
  float* found;                // set to 1 if there is one
};

constexpr std::uint64_t all_finite = ~std::uint64_t{0};  // what `first` is before the scan

// What thread `thread` of `threads` does. `lower(at, value)` replaces *at by `value` if that is less; for
// threads that run at the same time, it must be atomic.
template <class Word, class Lower>
FARANDOLE_DEVICE void scan_words(const NonfiniteScan& scan, std::uint64_t thread, std::uint64_t threads,
                                 Lower lower) {
  constexpr std::uint64_t lanes = sizeof(DeviceVector) / sizeof(Word);
  const auto exponent = static_cast<Word>(scan.exponent);
  std::uint64_t first = all_finite;
  const auto look = [&](Word word, std::uint64_t at) {
    if ((word & exponent) == exponent && at < first) first = at;
  };
  const std::uint64_t vectors = scan.count / lanes;
  for (std::uint64_t v = thread; v < vectors; v += threads) {
    union {
      DeviceVector vector;
      Word lane[lanes];
    } value;
    value.vector = static_cast<const DeviceVector*>(scan.data)[v];
    for (std::uint64_t i = 0; i < lanes; ++i) look(value.lane[i], v * lanes + i);
  }
  for (std::uint64_t i = vectors * lanes + thread; i < scan.count; i += threads)
    look(static_cast<const Word*>(scan.data)[i], i);
  if (first == all_finite) return;
  lower(scan.first, first);
  *scan.found = 1;
}

template <class Lower>
FARANDOLE_DEVICE void scan_nonfinite(const NonfiniteScan& scan, std::uint64_t thread, std::uint64_t threads,
                                     Lower lower) {
  if (scan.element_size == 2)
    scan_words<DeviceWord<std::uint16_t>>(scan, thread, threads, lower);
  else if (scan.element_size == 4)
    scan_words<DeviceWord<std::uint32_t>>(scan, thread, threads, lower);
  else
    scan_words<DeviceWord<std::uint64_t>>(scan, thread, threads, lower);
}

}  // namespace farandole
