// What a rank is doing, as it lies on the status board and travels between hosts. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "farandole/timeline/event.h"

namespace farandole {

// Copies as much of `text` as fits, and ends it with 0.
template <std::size_t n>
void store_text(char (&to)[n], std::string_view text) {
  const auto length = text.size() < n - 1 ? text.size() : n - 1;
  std::memcpy(to, text.data(), length);
  std::memset(to + length, 0, n - length);
}

// Which collective of which communicator: equal on all ranks.
struct CallKey {
  std::uint32_t communicator = 0;
  std::uint32_t sequence = 0;
  bool operator==(const CallKey&) const = default;
};

// The last collective of one communicator.
struct CallStatus {
  std::uint64_t bytes = 0;
  std::int64_t waited_ns = 0;  // while it is in flight
  CallKey key;                 // meaningless before the first
  std::uint32_t entered = 0;   // collectives begun so far
  std::uint32_t in_flight = 0;
  char operation[16] = {};
  char name[48] = {};
};

enum class Life : std::uint8_t {
  unknown,  // nothing was heard of it
  running,
  silent,   // its watchdog does not get to run
  stopped,  // by a signal, as SIGSTOP
  traced,   // held by a debugger
  leaving,  // has ended its session in order
  ended,    // is gone
};

struct RankStatus {
  static constexpr std::size_t most_calls = 8;

  std::int32_t rank = -1;
  std::int32_t pid = 0;
  Life life = Life::unknown;
  bool in_span = false;
  Category category = Category::other;  // of the span that the training thread is in
  char in_kernel = 0;                   // 1: the training thread waits inside the kernel (state D)
  std::uint32_t calls_used = 0;
  std::int64_t span_ns = 0;  // so long; 0: unknown
  char span[64] = {};        // its name; "": not asked yet
  char detail[160] = {};     // what it has not produced yet
  CallStatus calls[most_calls];
};
static_assert(std::is_trivially_copyable_v<RankStatus> && sizeof(RankStatus) % 8 == 0);

}  // namespace farandole
