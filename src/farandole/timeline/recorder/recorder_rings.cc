#include "farandole/timeline/recorder/recorder_rings.h"

#include <algorithm>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace farandole {
namespace {

std::uint64_t next_instance() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

bool is_main_thread() {
  return ::syscall(SYS_gettid) == ::getpid();
}

}  // namespace

thread_local constinit RecorderRings::Cache RecorderRings::cache_;

struct RecorderRings::Held {
  std::uint64_t instance;
  std::weak_ptr<RecorderRings> rings;
  ThreadRing* ring;
};

// The rings of all timelines that this thread holds. They are given back when the thread ends.
struct RecorderRings::HeldByThread {
  std::vector<Held> all;

  ~HeldByThread() {
    for (const Held& held : std::exchange(all, {}))  // a fork may still look at them
      if (const auto rings = held.rings.lock(); rings && held.ring != nullptr) rings->give_back(held.ring);
    cache_ = {};
  }
  static HeldByThread& of_this_thread() {
    thread_local HeldByThread held;
    return held;
  }
};

// All objects of this process. A fork waits until no thread holds one of their locks: nobody would
// release it in the child.
struct RecorderRings::Living {
  std::mutex mutex;
  std::vector<RecorderRings*> all;

  static Living& of_this_process() {
    static Living& living = *new Living;  // threads that end at the exit of the process need it
    return living;
  }
  Living() { ::pthread_atfork(before_fork, after_fork, in_child); }

  static void before_fork() {
    Living& living = of_this_process();
    living.mutex.lock();
    for (RecorderRings* rings : living.all) {
      rings->mutex_.lock();
      rings->mutex_of_names_.lock();
    }
  }
  static void after_fork() {
    Living& living = of_this_process();
    for (RecorderRings* rings : living.all) {
      rings->mutex_of_names_.unlock();
      rings->mutex_.unlock();
    }
    living.mutex.unlock();
  }
  static void in_child() {
    for (RecorderRings* rings : of_this_process().all) {
      rings->forked_ = true;
      rings->map_->leave_to_parent();
    }
    for (Held& held : HeldByThread::of_this_thread().all) held.ring = nullptr;
    cache_ = {};
    after_fork();
  }
};

RecorderRings::RecorderRings(std::unique_ptr<RecorderMap> map, WhenFull when_full)
    : instance(next_instance()), map_(std::move(map)), when_full_(when_full) {
  for (std::size_t i = 0; i < recorder::thread_slots; ++i) {
    rings_[i].entry = &map_->thread(i);
    rings_[i].slot = static_cast<std::uint16_t>(i);
  }
  pages_.emplace(*map_);
  Living& living = Living::of_this_process();
  const std::lock_guard lock(living.mutex);
  living.all.push_back(this);
}

RecorderRings::~RecorderRings() {
  Living& living = Living::of_this_process();
  const std::lock_guard lock(living.mutex);
  std::erase(living.all, this);
  if (forked_) pages_->leave_to_parent();
}

void RecorderRings::name_thread(std::string_view name) {
  name = name.substr(0, sizeof(recorder::ThreadEntry::name) - 1);
  auto& held = HeldByThread::of_this_thread().all;
  const auto found =
      std::find_if(held.begin(), held.end(), [this](const auto& one) { return one.instance == instance; });
  if (found == held.end())
    held.push_back({instance, weak_from_this(), take_slot(name)});
  else if (found->ring != nullptr)
    set_name(*found->ring->entry, name);
}

ThreadRing* RecorderRings::find_ring() {
  auto& held = HeldByThread::of_this_thread().all;
  const auto found =
      std::find_if(held.begin(), held.end(), [this](const auto& one) { return one.instance == instance; });
  ThreadRing* ring = found != held.end() ? found->ring : take_slot("");
  if (found == held.end()) {
    std::erase_if(held, [](const auto& one) { return one.rings.expired(); });
    held.push_back({instance, weak_from_this(), ring});
  }
  cache_ = {instance, ring};
  return ring;
}

// Reuses the slot of an ended thread with the same name, or takes a new one. Slot 0 is for the training
// thread: the thread with that name, or else the first thread of the process.
ThreadRing* RecorderRings::take_slot(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (forked_) return nullptr;
  const auto take = [&](ThreadRing& ring) {
    taken_[ring.slot] = true;
    if (ring.chunks == 0 && ring.slot > 0) pages_->prepare(ring.slot);
    if (std::exchange(ring.entry->in_use, 1u) == 0) set_name(*ring.entry, name);
    return &ring;
  };
  for (ThreadRing& ring : rings_)
    if (!taken_[ring.slot] && ring.entry->in_use != 0 && name == ring.entry->name.data()) return take(ring);
  const bool trains = name == "training" || (name.empty() && is_main_thread());
  if (trains && rings_[0].entry->in_use == 0) return take(rings_[0]);
  for (std::size_t i = 1; i < rings_.size(); ++i)
    if (rings_[i].entry->in_use == 0) return take(rings_[i]);
  return rings_[0].entry->in_use == 0 ? take(rings_[0]) : nullptr;
}

void RecorderRings::give_back(ThreadRing* ring) {
  const std::lock_guard lock(mutex_);
  taken_[ring->slot] = false;
}

void RecorderRings::set_name(recorder::ThreadEntry& entry, std::string_view name) {
  entry.name.fill('\0');
  name.copy(entry.name.data(), entry.name.size() - 1);
}

bool RecorderRings::start_chunk(ThreadRing& ring) {
  recorder::ThreadEntry& entry = *ring.entry;
  // If no chunk is left, readers assume that the oldest records are being overwritten.
  const std::uint32_t end = recorder::chunk_count - (when_full_ == WhenFull::drops ? 1 : 0);
  if (ring.growing) {
    std::uint32_t chunk = ring.slot;
    if (ring.chunks > 0) {
      const std::atomic_ref next_chunk(map_->header().next_chunk);
      chunk = next_chunk.load(std::memory_order_relaxed);
      while (chunk < end && !next_chunk.compare_exchange_weak(chunk, chunk + 1, std::memory_order_relaxed)) {
      }
    }
    ring.growing = chunk < end;
    if (ring.growing) {
      entry.chunks[ring.chunks] = static_cast<std::uint16_t>(chunk);
      ring.present = ring.chunks++;
      std::atomic_ref(entry.chunks_used).store(ring.chunks, std::memory_order_release);
    }
  }
  if (!ring.growing && when_full_ == WhenFull::drops) return false;
  if (!ring.growing) ring.present = (ring.present + 1) % ring.chunks;
  ring.next = map_->chunk(entry.chunks[ring.present]);
  ring.chunk_end = ring.next + map_->geometry.chunk_records;
  pages_->chunk_started();
  return true;
}

// Updates the record in place, so that no data is pending if the process is killed. Each store leaves it
// sound, because the check does not cover the two fields.
bool RecorderRings::extends_last(const Record& poll) {
  constexpr std::int64_t at_once_ns = 2'000;
  ThreadRing* const ring = this->ring();
  if (ring == nullptr || ring->next == nullptr) return false;
  if (ring->next == map_->chunk(ring->entry->chunks[ring->present])) return false;
  Record& last = ring->next[-1];
  if (last.details != poll.details || last.name != poll.name || last.step != poll.step ||
      last.kind != poll.kind || poll.start_ns - last.end_ns > at_once_ns)
    return false;
  std::atomic_ref(last.end_ns).store(poll.end_ns, std::memory_order_relaxed);
  std::atomic_ref(last.payload).store(last.payload + poll.payload, std::memory_order_relaxed);
  return true;
}

}  // namespace farandole
