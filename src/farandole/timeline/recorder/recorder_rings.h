// Where the threads of a timeline write their records: rings of chunks in one mapped file. Threads write at
// once, without locks, allocation or system calls but for a thread's first record, which takes a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "farandole/timeline/recorder/page_prefaulter.h"
#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/recorder/recorder_map.h"

namespace farandole {

// Where a thread writes next; used by the one thread that holds the slot.
struct alignas(64) ThreadRing {
  Record* next = nullptr;
  Record* chunk_end = nullptr;
  std::uint64_t head = 0;
  recorder::ThreadEntry* entry = nullptr;
  std::uint32_t chunks = 0;
  std::uint32_t present = 0;  // index in entry->chunks of the chunk in use
  std::uint16_t slot = 0;
  bool growing = true;
};

// Shared with the threads that have a ring, which give it back when they end.
class RecorderRings : public std::enable_shared_from_this<RecorderRings> {
 public:
  // Of a thread for which no chunk is left: its oldest records make room, or its newest have none.
  enum class WhenFull { overwrites, drops };

  RecorderRings(std::unique_ptr<RecorderMap> map, WhenFull when_full);

  const std::uint64_t instance;  // no other of this process has or had it
  RecorderMap& map() { return *map_; }

  // The calling thread's; null: there is none left.
  ThreadRing* ring() { return cache_.instance == instance ? cache_.ring : find_ring(); }
  ThreadRing& in_slot(std::size_t slot) { return rings_[slot]; }
  bool is_training(const ThreadRing* ring) const { return ring == &rings_[0]; }
  void name_thread(std::string_view name);
  // For what is no thread: one writes at a time. Null: there is none left.
  ThreadRing* take_slot(std::string_view name);

  // Calls fill(record) on the next record of the calling thread's `ring` and publishes it; counts it as
  // dropped where the thread has none, or no room in it.
  template <typename Fill>
  void write(ThreadRing* ring, std::int64_t step, Fill&& fill) {
    if (ring == nullptr) return drop();
    if (ring->next == ring->chunk_end && !start_chunk(*ring)) return drop();
    Record& record = *ring->next++;  // in place: a copy would wait for its stores
    __builtin_prefetch(ring->next + records_ahead, 1);
    record = Record{};
    record.step = step;
    record.track = ring->slot;
    fill(record);
    record.check = record_check(record, ring->head);
    std::atomic_ref(ring->entry->head).store(++ring->head, std::memory_order_release);
  }
  // Makes the calling thread's last record last until poll's end where `poll` goes on with what it is: a call
  // without success, and the same again at once.
  bool extends_last(const Record& poll);
  void drop() { std::atomic_ref(map_->header().dropped).fetch_add(1, std::memory_order_relaxed); }

 private:
  // Two pages, so that the first record of a page does not wait for its address to be translated.
  static constexpr std::ptrdiff_t records_ahead = 128;

  // The rings that this thread used last.
  struct Cache {
    std::uint64_t instance = 0;
    ThreadRing* ring = nullptr;
  };
  struct Held;
  struct HeldByThread;

  ThreadRing* find_ring();
  void give_back(ThreadRing* ring);
  void set_name(recorder::ThreadEntry& entry, std::string_view name);
  bool start_chunk(ThreadRing& ring);  // false: there is none

  static thread_local constinit Cache cache_;
  const std::unique_ptr<RecorderMap> map_;
  const WhenFull when_full_;
  std::array<ThreadRing, recorder::thread_slots> rings_;
  std::optional<PagePrefaulter> pages_;
  std::mutex mutex_;                                  // of what follows, and of taking slots
  std::array<bool, recorder::thread_slots> taken_{};  // by a thread that lives
};

}  // namespace farandole
