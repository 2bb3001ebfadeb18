// Keeps the pages of a recorder's file ready ahead of the threads that record, so that they meet no page
// fault: in memory, mapped, and open for writing again after the kernel has written them to disk. Created and
// destroyed by one thread; chunk_started() is for any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include "farandole/timeline/recorder_map.h"

namespace farandole {

// A thread of its own waits for chunks to be begun and then prepares the pool's next ones or, where the pool
// is empty, the one that the ring comes to next. Kernels before Linux 5.14 cannot be asked for that: there,
// threads meet their page faults themselves.
class PageKeeper {
 public:
  explicit PageKeeper(RecorderMap& map);  // which outlives this object
  ~PageKeeper();
  PageKeeper(const PageKeeper&) = delete;
  PageKeeper& operator=(const PageKeeper&) = delete;

  // A ring has moved on. Wakes the keeper, where it sleeps: once in thousands of records.
  void chunk_started() noexcept {
    started_.fetch_add(1, std::memory_order_release);
    started_.notify_one();
  }
  void prepare(std::uint32_t chunk);

 private:
  void run();
  void prepare_pool();
  void prepare_rings();

  RecorderMap& map_;
  std::uint32_t pool_ready_ = recorder::thread_slots;               // chunks before it
  std::array<std::uint64_t, recorder::thread_slots> ring_ready_{};  // chunks begun, when last looked at
  std::atomic<std::uint32_t> started_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace farandole
