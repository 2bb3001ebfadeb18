// Where the ranks of a node wait for each other, in memory that they share. Used by one thread at a time.
//
// Every rank counts its arrivals in a line of memory of its own and reads the others'; nobody writes a shared
// counter, so that an arrival costs one cache miss a peer, and a rank that is missed has a name. A rank spins
// first, which is quickest, or yields its core in turns, then sleeps on a futex.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace farandole {

// What a rank tells the others when it arrives for a call. Kept for two calls: a rank may enter the next one
// while a slow peer still reads this one's.
struct CallNote {
  std::uint64_t signature = 0;  // hash of the call as this rank means it
  std::uint64_t offset = 0;    // of its data in its arena, or not_shared
};
inline constexpr std::uint64_t not_shared = ~std::uint64_t{0};

// A rank's line; it starts as zeros.
struct alignas(64) ArrivalLine {
  std::atomic<std::uint32_t> arrivals;  // the futex that the others sleep on
  std::atomic<std::uint32_t> sleepers;
  CallNote notes[2];
  std::atomic<std::uint32_t> left;  // this rank makes no more calls
};
static_assert(sizeof(ArrivalLine) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

// What a rank does before it sleeps.
struct Patience {
  std::chrono::nanoseconds spin{50'000};
  // Between two looks, whoever waits for the core gets it: for ranks that outnumber the cores.
  bool yield = false;
};

class NodeBarrier {
 public:
  // `lines` by rank, shared by all. `while_waiting` is called about every 50 ms of a wait, with the rank
  // that is waited for and whether it has left for good; what it throws ends the wait.
  NodeBarrier(int rank, std::vector<ArrivalLine*> lines, Patience patience,
              std::function<void(int missing, bool left)> while_waiting);
  // Wakes the ranks that wait for this one: it will not come.
  ~NodeBarrier();
  NodeBarrier(const NodeBarrier&) = delete;
  NodeBarrier& operator=(const NodeBarrier&) = delete;

  // Everything that this rank wrote before is visible to those that saw its arrival.
  void arrive();
  // Whether every rank has arrived as often as this one.
  bool complete() const;
  // Returns when they have.
  void wait();
  void arrive_and_wait() {
    arrive();
    wait();
  }

  // The note of a rank for call number `call`; own ones are written before arrive(), others' read after
  // wait().
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
