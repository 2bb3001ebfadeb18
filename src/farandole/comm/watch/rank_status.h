// The status of a rank as it is stored on the status board and sent between hosts, and the texts of stall
// reports that are composed from statuses. Plain values and pure functions.
// Thread safety: const methods may run concurrently; others need external synchronization. Any thread may
// call the functions at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/thread_probe.h"
#include "farandole/timeline/event.h"
#include "farandole/timeline/stalled_call.h"

namespace farandole {

// Copies as much of `text` as fits and terminates it with 0.
template <std::size_t n>
void store_text(char (&to)[n], std::string_view text) {
  const auto length = text.size() < n - 1 ? text.size() : n - 1;
  std::memcpy(to, text.data(), length);
  std::memset(to + length, 0, n - length);
}

// The last collective of one communicator.
struct CallStatus {
  std::uint64_t bytes = 0;
  std::int64_t waited_ns = 0;  // how long it has been in flight
  CallKey key;                 // valid only if entered > 0
  std::uint32_t entered = 0;   // number of collectives begun so far
  std::uint32_t in_flight = 0;
  std::int32_t ranks = 0, owner = 0, caller = 0, blocked = 0, awaits = 0;  // as in CollectiveStatus
  std::uint32_t begun = 0;
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
  static constexpr std::size_t most_calls = 10;

  std::int32_t rank = -1;
  std::int32_t pid = 0;
  Life life = Life::unknown;
  bool in_span = false;
  bool all_calls = false;               // `calls` has all communicators that this rank has ever had
  bool busy = false;                    // the process has computed, read or written in the last seconds
  Category category = Category::other;  // of the innermost span of the training thread
  char in_kernel = 0;                   // 1: the training thread waits inside the kernel (state D)
  std::uint32_t calls_used = 0;
  std::int32_t thread = 0;   // the training thread
  std::int64_t steps = 0;    // steps that the optimizers have ended
  std::int64_t calm_ns = 0;  // how long the calls have not changed
  std::int64_t span_ns = 0;  // duration of the span so far; 0 means unknown
  char span[64] = {};        // name of the span; "" if it was not asked for yet
  char place[96] = {};       // ThreadSnapshot::place when it was asked for
  char detail[160] = {};     // what the rank has not produced yet
  CallStatus calls[most_calls];
};
static_assert(std::is_trivially_copyable_v<RankStatus> && sizeof(RankStatus) % 8 == 0);

// A rank that was lost, as PeerWatch or another rank has reported it.
struct LostRank {
  std::int32_t rank = -1;
  std::int32_t pid = 0;  // 0: unknown
  char cause[120] = {};  // LostPeer::cause
};

bool is_setup(const CallStatus& call);
// False if these calls of two ranks, with the same key, can never end together.
bool is_same_call(const CallStatus& a, const CallStatus& b);
std::string describe_call(const CallStatus& call);  // "allreduce #17 'bucket 0'"

// The activity of the rank as a clause: "is in allreduce #17 'bucket 0' for 61 s", "is stuck in data loading
// ('load' for 61 s)", or "is stuck in data loading, loader.py:118 in fetch, for 61 s".
std::string describe_activity(const RankStatus& status);
// The call in flight in which the rank has waited longest; nullptr if there is none.
const CallStatus* waiting_in(const RankStatus& status);
std::span<const CallStatus> calls_of(const RankStatus& status);
// The thread cannot go on before this call has ended.
inline bool blocks(const CallStatus& call, std::int32_t thread) {
  return call.in_flight != 0 && (call.blocked == thread || call.awaits == thread);
}
// True if the training thread waits in a collective.
bool is_blocked(const RankStatus& status);
// True if the rank does something else than waiting for others.
bool is_working(const RankStatus& status);

// The report of one rank about itself: one line, the contents of the collective, and the stack.
struct OwnReport {
  RankStatus status;
  std::string host;
  std::optional<CallKey> missed_in;  // the collective in which others wait for this rank
  std::optional<CollectiveRegistry::Meaning> meaning;
  std::optional<ThreadSnapshot> thread;
};
std::string own_report(const OwnReport& report);

// The summary for the whole job. statuses[r] is the status of rank r; its life is `unknown`
// if nothing was received.
struct StallSummary {
  StalledCall call;  // since_ns is relative to now: the first rank has waited -since_ns
  std::string text;
};
// std::nullopt if no rank is in a collective. `explain` returns the contents of the collective
// if they are known.
std::optional<StallSummary> summarize_stall(
    std::span<const RankStatus> statuses, const std::vector<std::string>& hosts,
    const std::function<std::optional<CollectiveRegistry::Meaning>(const CallKey&)>& explain);

}  // namespace farandole
