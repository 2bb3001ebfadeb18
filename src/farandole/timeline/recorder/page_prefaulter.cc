#include "farandole/timeline/recorder/page_prefaulter.h"

#include <algorithm>
#include <cstddef>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "farandole/base/process/quiet_thread.h"

namespace farandole {
namespace {

constexpr int populate_write = 23;  // MADV_POPULATE_WRITE; older headers do not define it

// 8 MiB, which lasts 6 ms at one event per 50 ns, but not more than 1/8 of the file, and not
// less than two chunks.
std::uint32_t chunks_ahead(const recorder::Geometry& geometry) {
  constexpr std::size_t bytes = 8 << 20;
  const std::size_t chunk = geometry.chunk_records * sizeof(Record);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(bytes / chunk, 2, recorder::chunk_count / 8));
}

}  // namespace

PagePrefaulter::PagePrefaulter(RecorderMap& map) : map_(map), ahead_(chunks_ahead(map.geometry)) {
  prepare(0);
  prepare_pool();
  thread_ = start_quiet_thread([this] { run(); });
}

PagePrefaulter::~PagePrefaulter() {
  stop_.store(true, std::memory_order_release);
  wake();
  if (thread_.joinable()) thread_.join();
}

void PagePrefaulter::prepare(std::uint32_t chunk) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(map_.chunk(chunk)) & ~(page - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(map_.chunk(chunk + 1));
  ::madvise(reinterpret_cast<void*>(begin), end - begin, populate_write);
}

void PagePrefaulter::run() {
  ::pthread_setname_np(::pthread_self(), "recorder pages");
  std::uint32_t seen = 0;
  while (true) {
    wakes_.wait(seen, std::memory_order_acquire);
    seen = wakes_.load(std::memory_order_acquire);  // read first, so that a later wake-up is not missed
    if (stop_.load(std::memory_order_acquire)) return;
    prepare_pool();
    prepare_rings();
  }
}

void PagePrefaulter::prepare_pool() {
  const std::uint32_t next = std::atomic_ref(map_.header().next_chunk).load(std::memory_order_relaxed);
  const std::uint32_t end = std::min(next + ahead_, recorder::chunk_count);
  for (pool_ready_ = std::max(pool_ready_, next); pool_ready_ < end; ++pool_ready_) prepare(pool_ready_);
}

void PagePrefaulter::prepare_rings() {
  if (std::atomic_ref(map_.header().next_chunk).load(std::memory_order_relaxed) < recorder::chunk_count)
    return;
  for (std::uint32_t slot = 0; slot < recorder::thread_slots; ++slot) {
    recorder::ThreadEntry& entry = map_.thread(slot);
    const std::uint32_t chunks = std::atomic_ref(entry.chunks_used).load(std::memory_order_acquire);
    if (chunks == 0) continue;
    const std::uint64_t begun =
        std::atomic_ref(entry.head).load(std::memory_order_acquire) / map_.geometry.chunk_records;
    const std::uint64_t end = begun + 1 + std::min(chunks - 1, ahead_);
    for (auto& next = ring_ready_[slot] = std::max(ring_ready_[slot], begun + 1); next < end; ++next)
      prepare(entry.chunks[next % chunks]);
  }
}

}  // namespace farandole
