// Prepares the pages of a recorder's file before threads record into them, so that these threads meet no page
// faults. The pages are in memory, mapped, and writable again after the kernel has written them to disk.
// Thread safety: none; use from one thread at a time. Any thread may call chunk_started() at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include "farandole/timeline/recorder/recorder_map.h"

namespace farandole {

// A helper thread wakes after every few started chunks. It prepares the next chunks of the pool or, if the
// pool is empty, the chunks that the rings will reach next. Kernels before Linux 5.14 do not support this;
// the recording threads then meet their page faults themselves.
class PagePrefaulter {
 public:
  explicit PagePrefaulter(RecorderMap& map);  // `map` must outlive this object
  ~PagePrefaulter();
  PagePrefaulter(const PagePrefaulter&) = delete;
  PagePrefaulter& operator=(const PagePrefaulter&) = delete;

  // A ring has started a new chunk. The helper thread is woken rarely, because a wake-up takes microseconds
  // and a processor woken beside the recording one slows it for longer.
  void chunk_started() noexcept {
    if (started_.fetch_add(1, std::memory_order_relaxed) % (ahead_ / 2) == 0) wake();
  }
  void prepare(std::uint32_t chunk);
  void leave_to_parent() { thread_.detach(); }  // in a forked process, which has no helper thread

 private:
  void wake() noexcept {
    wakes_.fetch_add(1, std::memory_order_release);
    wakes_.notify_one();
  }
  void run();
  void prepare_pool();
  void prepare_rings();

  RecorderMap& map_;
  const std::uint32_t ahead_;                          // number of chunks to keep ready
  std::uint32_t pool_ready_ = recorder::thread_slots;  // all chunks before this one are ready
  // Ready chunks per ring, counted from its first.
  std::array<std::uint64_t, recorder::thread_slots> ring_ready_{};
  std::atomic<std::uint32_t> started_{0};  // started chunks
  std::atomic<std::uint32_t> wakes_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace farandole
