#include "farandole/comm/shm/node_barrier.h"

#include <algorithm>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "farandole/base/clock.h"

namespace farandole {
namespace {

constexpr long glance_ns = 50'000'000;  // how long to sleep between two checks whether the others are alive
constexpr int spins_between_clocks = 32;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// The word is in memory shared between processes, so the futex must not be private.
void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Returns once the word has another value than `value`, time has run out, or a signal arrives.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const timespec limit{0, glance_ns};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

}  // namespace

NodeBarrier::NodeBarrier(int rank, std::vector<ArrivalLine*> lines, Patience patience,
                         std::function<void(int, bool)> while_waiting)
    : rank_(static_cast<std::size_t>(rank)),
      lines_(std::move(lines)),
      patience_(patience),
      while_waiting_(std::move(while_waiting)) {}

NodeBarrier::~NodeBarrier() {
  leave(Leaving::closed);
}

void NodeBarrier::leave(Leaving reason) {
  std::uint32_t none = 0;
  lines_[rank_]->left.compare_exchange_strong(none, static_cast<std::uint32_t>(reason));
  futex_wake_all(lines_[rank_]->arrivals);
}

bool NodeBarrier::refused() const {
  return std::ranges::any_of(lines_, [](const ArrivalLine* line) {
    return line->left.load() == static_cast<std::uint32_t>(Leaving::refused);
  });
}

void NodeBarrier::arrive() {
  auto& own = *lines_[rank_];
  // Sequentially consistent with the count of sleepers: either this rank sees the sleeper, or the
  // sleeper sees the arrival.
  own.arrivals.store(++arrivals_, std::memory_order_seq_cst);
  if (own.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(own.arrivals);
}

bool NodeBarrier::is_here(std::size_t rank) const {
  return static_cast<std::int32_t>(lines_[rank]->arrivals.load(std::memory_order_acquire) - arrivals_) >= 0;
}

bool NodeBarrier::complete() const {
  for (std::size_t r = 0; r < lines_.size(); ++r)
    if (!is_here(r)) return false;
  return true;
}

void NodeBarrier::wait() {
  std::int64_t give_up_ns = 0;
  for (std::size_t r = 0; r < lines_.size(); ++r) {
    for (int spins = 0; !is_here(r);) {
      patience_.yield ? static_cast<void>(::sched_yield()) : pause();
      if (++spins % (patience_.yield ? 1 : spins_between_clocks) != 0) continue;
      if (give_up_ns == 0) give_up_ns = now_ns() + patience_.spin.count();
      if (now_ns() < give_up_ns) continue;
      sleep_until_here(r);
    }
  }
}

void NodeBarrier::sleep_until_here(std::size_t rank) {
  auto& line = *lines_[rank];
  struct Sleeper {
    explicit Sleeper(ArrivalLine& its_line) : line(its_line) { line.sleepers.fetch_add(1); }
    ~Sleeper() { line.sleepers.fetch_sub(1); }
    ArrivalLine& line;
  } sleeper(line);
  for (auto glance_at_ns = now_ns() + glance_ns;;) {
    const bool left = line.left.load(std::memory_order_seq_cst) != 0;  // if true, its arrivals are final
    const auto seen = line.arrivals.load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(seen - arrivals_) >= 0) return;
    if (!left) futex_wait(line.arrivals, seen);
    if (!left && now_ns() < glance_at_ns) continue;
    while_waiting_(static_cast<int>(rank), left);
    glance_at_ns = now_ns() + glance_ns;
  }
}

}  // namespace farandole
