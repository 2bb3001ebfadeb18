// The barrier of the ranks of a node, in shared memory.
// Thread safety: none; use from one thread at a time.
//
// Every rank counts its arrivals in its own cache line and reads the lines of the others. There is no shared
// counter, so an arrival costs one cache miss per peer, and a missing rank can be named. A rank first spins,
// which is fastest, or yields its core between checks, and then sleeps on a futex.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace farandole {

// Data that a rank passes to the others when it arrives for a call. It is kept for two calls, because a rank
// may enter the next call while a slow peer still reads the data of this one.
struct CallNote {
  std::uint64_t signature = 0;  // hash of this rank's call descriptor
  std::uint64_t offset = 0;     // of its data in its arena, or not_shared
};
inline constexpr std::uint64_t not_shared = ~std::uint64_t{0};

// The line of one rank. It is initially zero.
struct alignas(64) ArrivalLine {
  std::atomic<std::uint32_t> arrivals;  // the futex on which the others sleep
  std::atomic<std::uint32_t> sleepers;
  CallNote notes[2];
  std::atomic<std::uint32_t> left;  // not 0: this rank makes no more calls; a value of Leaving
};
static_assert(sizeof(ArrivalLine) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

enum class Leaving : std::uint32_t {
  closed = 1,   // the communicator was closed
  refused = 2,  // the ranks' calls differ
};

// What a rank does before it sleeps.
struct Patience {
  std::chrono::nanoseconds spin{50'000};
  // If true, the rank yields its core between checks. Used if there are more ranks than cores.
  bool yield = false;
};

class NodeBarrier {
 public:
  // `lines` are the lines of all ranks, by rank, in shared memory. During a wait, `while_waiting` is
  // called about every 50 ms with the missing rank and whether that rank has left for good. An exception
  // from it ends the wait.
  NodeBarrier(int rank, std::vector<ArrivalLine*> lines, Patience patience,
              std::function<void(int missing, bool left)> while_waiting);
  // Leaves as `closed`.
  ~NodeBarrier();
  NodeBarrier(const NodeBarrier&) = delete;
  NodeBarrier& operator=(const NodeBarrier&) = delete;

  // Everything that this rank wrote before is visible to ranks that have seen its arrival.
  void arrive();
  // True if every rank has arrived as often as this one.
  bool complete() const;
  // Returns when complete() is true.
  void wait();
  void arrive_and_wait() {
    arrive();
    wait();
  }

  // Wakes the ranks that wait for this one, because it will not arrive. The first reason stays.
  void leave(Leaving reason);
  // True if any rank has left as `refused`.
  bool refused() const;

  // The note of a rank for call number `call`. A rank writes its own note before arrive() and reads the
  // others' notes after wait().
  CallNote& note(int rank, std::uint64_t call) {
    return lines_[static_cast<std::size_t>(rank)]->notes[call % 2];
  }

 private:
  bool is_here(std::size_t rank) const;
  void sleep_until_here(std::size_t rank);

  const std::size_t rank_;
  const std::vector<ArrivalLine*> lines_;
  const Patience patience_;
  const std::function<void(int, bool)> while_waiting_;
  std::uint32_t arrivals_ = 0;
};

}  // namespace farandole
