// Keeps the pages of a recorder's file ready ahead of the threads that record, so that they meet no page
// fault: in memory, mapped, and open for writing again after the kernel has written them to disk. Created and
// destroyed by one thread; chunk_started() is for any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include "farandole/timeline/recorder/recorder_map.h"

namespace farandole {

// A thread of its own wakes after every few chunks that were begun and prepares the pool's next ones or,
// where the pool is empty, those that the rings come to next. Kernels before Linux 5.14 cannot be asked for
// that: there, threads meet their page faults themselves.
class PagePrefaulter {
 public:
  explicit PagePrefaulter(RecorderMap& map);  // which outlives this object
  ~PagePrefaulter();
  PagePrefaulter(const PagePrefaulter&) = delete;
  PagePrefaulter& operator=(const PagePrefaulter&) = delete;

  // A ring has moved on. Seldom wakes the keeper: that takes microseconds, and a processor woken beside the
  // recording one slows it for longer.
  void chunk_started() noexcept {
    if (started_.fetch_add(1, std::memory_order_relaxed) % (ahead_ / 2) == 0) wake();
  }
  void prepare(std::uint32_t chunk);

 private:
  void wake() noexcept {
    wakes_.fetch_add(1, std::memory_order_release);
    wakes_.notify_one();
  }
  void run();
  void prepare_pool();
  void prepare_rings();

  RecorderMap& map_;
  const std::uint32_t ahead_;                                       // chunks to keep ready
  std::uint32_t pool_ready_ = recorder::thread_slots;               // chunks before it
  std::array<std::uint64_t, recorder::thread_slots> ring_ready_{};  // chunks since the ring's first, likewise
  std::atomic<std::uint32_t> started_{0};                           // chunks
  std::atomic<std::uint32_t> wakes_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace farandole
