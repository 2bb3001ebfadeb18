// The status of a rank as it is stored on the status board and sent between hosts. Plain values.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "farandole/timeline/event.h"

namespace farandole {

// Copies as much of `text` as fits and terminates it with 0.
template <std::size_t n>
void store_text(char (&to)[n], std::string_view text) {
  const auto length = text.size() < n - 1 ? text.size() : n - 1;
  std::memcpy(to, text.data(), length);
  std::memset(to + length, 0, n - length);
}

// Identifies a collective of a communicator; equal on all ranks.
struct CallKey {
  std::uint32_t communicator = 0;
  std::uint32_t sequence = 0;
  bool operator==(const CallKey&) const = default;
};

// The last collective of one communicator.
struct CallStatus {
  std::uint64_t bytes = 0;
  std::int64_t waited_ns = 0;  // how long it has been in flight
  CallKey key;                 // valid only if entered > 0
  std::uint32_t entered = 0;   // number of collectives begun so far
  std::uint32_t in_flight = 0;
  char operation[16] = {};
  char name[48] = {};
};

enum class Life : std::uint8_t {
  unknown,  // nothing was received from it
  running,
  silent,   // its watchdog is not scheduled
  stopped,  // stopped by a signal such as SIGSTOP
  traced,   // held by a debugger
  leaving,  // has ended its session normally
  ended,    // has ended
};

struct RankStatus {
  static constexpr std::size_t most_calls = 8;

  std::int32_t rank = -1;
  std::int32_t pid = 0;
  Life life = Life::unknown;
  bool in_span = false;
  Category category = Category::other;  // of the innermost span of the training thread
  char in_kernel = 0;                   // 1: the training thread waits inside the kernel (state D)
  std::uint32_t calls_used = 0;
  std::int64_t span_ns = 0;  // duration of the span so far; 0 means unknown
  char span[64] = {};        // name of the span; "" if it was not asked for yet
  char detail[160] = {};     // what the rank has not produced yet
  CallStatus calls[most_calls];
};
static_assert(std::is_trivially_copyable_v<RankStatus> && sizeof(RankStatus) % 8 == 0);

}  // namespace farandole
