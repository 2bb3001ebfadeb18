// What code needs that is compiled for GPUs and, with the same arithmetic, for the CPU.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define FARANDOLE_DEVICE __host__ __device__
#else
#define FARANDOLE_DEVICE
#endif

namespace farandole {

constexpr std::uint32_t most_peers = 16;  // that share GPUs

// Words that may be read from memory of any type.
template <class Integer>
using DeviceWord [[gnu::may_alias]] = Integer;

// 16 bytes, which a thread of a GPU reads or writes at once.
struct alignas(16) [[gnu::may_alias]] DeviceVector {
  std::uint32_t words[4];
};

}  // namespace farandole
