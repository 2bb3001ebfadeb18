// The rings of chunks in one mapped file, where the threads of a timeline write their records. Threads write
// concurrently, without locks, allocation or system calls. Only a thread's first record takes a lock.
// Thread safety: any thread may call this at any time. Only the thread that holds a ring uses it. A forked
// process has no rings: it records nothing and leaves the file as it is.
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

// The place where a thread writes next.
// Thread safety: none; use from one thread at a time. This is the thread that holds the slot.
struct alignas(64) ThreadRing {
  Record* next = nullptr;
  Record* chunk_end = nullptr;
  std::uint64_t head = 0;
  recorder::ThreadEntry* entry = nullptr;
  std::uint32_t chunks = 0;
  std::uint32_t present = 0;  // index in entry->chunks of the current chunk
  std::uint16_t slot = 0;
  bool growing = true;
};

// Shared with the threads that have a ring. They give it back when they end.
class RecorderRings : public std::enable_shared_from_this<RecorderRings> {
 public:
  // What happens when no chunk is left for a thread: its new records overwrite its oldest ones,
  // or they are dropped.
  enum class WhenFull { overwrites, drops };

  RecorderRings(std::unique_ptr<RecorderMap> map, WhenFull when_full);
  ~RecorderRings();

  const std::uint64_t instance;  // unique among all objects of this process, past and present
  RecorderMap& map() { return *map_; }
  std::mutex& mutex_of_names() { return mutex_of_names_; }

  // The ring of the calling thread; null if none is left.
  ThreadRing* ring() { return cache_.instance == instance ? cache_.ring : find_ring(); }
  ThreadRing& in_slot(std::size_t slot) { return rings_[slot]; }
  bool is_training(const ThreadRing* ring) const { return ring == &rings_[0]; }
  void name_thread(std::string_view name);
  // A slot for a track instead of a thread; one thread at a time writes into it. Null if none is left.
  ThreadRing* take_slot(std::string_view name);

  // Calls fill(record) on the next record of the calling thread's `ring` and publishes the record. If the
  // thread has no ring, or the ring has no space, counts the record as dropped.
  template <typename Fill>
  void write(ThreadRing* ring, std::int64_t step, Fill&& fill) {
    if (ring == nullptr) return drop();
    if (ring->next == ring->chunk_end && !start_chunk(*ring)) return drop();
    Record& record = *ring->next++;  // written in place, because a copy would wait for its stores
    __builtin_prefetch(ring->next + records_ahead, 1);
    record = Record{};
    record.step = step;
    record.track = ring->slot;
    fill(record);
    record.check = record_check(record, ring->head);
    std::atomic_ref(ring->entry->head).store(++ring->head, std::memory_order_release);
  }
  // If `poll` repeats the calling thread's last record immediately, extends that record to the end of `poll`
  // and returns true. Both must be the same MPI call without success.
  bool extends_last(const Record& poll);
  void drop() { std::atomic_ref(map_->header().dropped).fetch_add(1, std::memory_order_relaxed); }

 private:
  // Two pages ahead, so that the first record of a page does not wait for its address translation.
  static constexpr std::ptrdiff_t records_ahead = 128;

  // The ring that this thread used last.
  struct Cache {
    std::uint64_t instance = 0;
    ThreadRing* ring = nullptr;
  };
  struct Held;
  struct HeldByThread;
  struct Living;

  ThreadRing* find_ring();
  void give_back(ThreadRing* ring);
  void set_name(recorder::ThreadEntry& entry, std::string_view name);
  bool start_chunk(ThreadRing& ring);  // false if no chunk is left

  static thread_local constinit Cache cache_;
  const std::unique_ptr<RecorderMap> map_;
  const WhenFull when_full_;
  std::array<ThreadRing, recorder::thread_slots> rings_;
  std::optional<PagePrefaulter> pages_;
  std::mutex mutex_of_names_;
  // Protects the members below and the assignment of slots.
  std::mutex mutex_;
  std::array<bool, recorder::thread_slots> taken_{};  // slots of living threads
  bool forked_ = false;                               // this process is a child of the one that records
};

}  // namespace farandole
