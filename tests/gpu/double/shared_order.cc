#include "gpu/double/shared_order.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace {

using gpu_double::SharedClock;

constexpr std::size_t streams_of_process = 16;

struct Place {
  std::uint64_t file, offset;
};

struct Noted {
  Place place;
  std::uint64_t bytes, stream, tick;
  bool writes;
};
struct Written {
  Place place;
  std::uint64_t value;
  SharedClock clock;
};

struct Table {
  pthread_mutex_t mutex;
  std::uint64_t state;  // 0: new, 1: in use
  std::uint64_t processes, noted_count, written_count;
  Noted noted[8192];
  Written written[2048];
};

// A process that is killed gives the lock back.
class Lock {
 public:
  explicit Lock(Table& table) : table_(table) {
    if (::pthread_mutex_lock(&table_.mutex) == EOWNERDEAD) ::pthread_mutex_consistent(&table_.mutex);
  }
  ~Lock() { ::pthread_mutex_unlock(&table_.mutex); }

 private:
  Table& table_;
};

struct Own {
  Table* table = nullptr;
  std::uint64_t process = 0;
};

// The file is new and zero; the first process makes the lock.
Own attach() {
  const char* const file = std::getenv("GPU_DOUBLE_SHARED");
  if (file == nullptr) return {};
  const int descriptor = std::atoi(file);
  void* const memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return {};
  auto& table = *static_cast<Table*>(memory);
  while (::lockf(descriptor, F_LOCK, 0) != 0) continue;
  if (std::exchange(table.state, 1) == 0) {
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(&table.mutex, &attributes);
  }
  Own own{&table, table.processes++};
  if (::lockf(descriptor, F_ULOCK, 0) != 0) std::abort();
  return own;
}

const Own& own() {
  static const Own attached = attach();
  return attached;
}

struct Known {
  std::size_t bytes;
  Place place;
};
std::mutex known_mutex;
std::map<const std::byte*, Known> known;
std::atomic<int> races{0};

std::optional<Place> place_of(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(known_mutex);
  auto next = known.upper_bound(at);
  if (next == known.begin()) return std::nullopt;
  const auto& [begin, it] = *--next;
  if (at >= begin + it.bytes) return std::nullopt;
  return Place{it.place.file, it.place.offset + static_cast<std::uint64_t>(at - begin)};
}

template <class Item, std::size_t n>
Item& append(Item (&items)[n], std::uint64_t& count) {
  if (count == n) {
    std::fprintf(stderr, "GPU double: the table of shared memory is full\n");
    std::abort();
  }
  return items[count++];
}

bool same(const Place& a, const Place& b) {
  return a.file == b.file && a.offset == b.offset;
}

}  // namespace

namespace gpu_double {

void join(SharedClock& into, const SharedClock& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

SharedClock& shared_of_host() {
  thread_local SharedClock clock{};
  return clock;
}

std::size_t shared_place(int stream) {
  const auto place =
      own().process * streams_of_process + static_cast<std::size_t>(stream) % streams_of_process;
  if (place >= SharedClock().size()) std::abort();
  return place;
}

void know_shared(const void* memory, std::size_t bytes, std::uint64_t file, std::uint64_t offset) {
  const std::lock_guard lock(known_mutex);
  known[static_cast<const std::byte*>(memory)] = {bytes, {file, offset}};
}

void forget_shared(const void* memory) {
  const std::lock_guard lock(known_mutex);
  known.erase(static_cast<const std::byte*>(memory));
}

// Work runs only after what it waits for, so nothing that was noted before can come after it.
void note_shared(int stream, const SharedClock& clock, const Access& access) {
  if (own().table == nullptr || access.bytes == 0) return;
  const auto place = place_of(access.memory);
  if (!place) return;
  auto& table = *own().table;
  const auto mine = shared_place(stream);
  const Lock lock(table);
  Noted* earlier = nullptr;
  for (std::uint64_t i = 0; i < table.noted_count; ++i) {
    auto& other = table.noted[i];
    if (other.place.file != place->file) continue;
    if (other.stream == mine) {
      if (same(other.place, *place) && other.bytes == access.bytes && other.writes == access.writes)
        earlier = &other;
      continue;
    }
    const bool overlap =
        other.place.offset < place->offset + access.bytes && place->offset < other.place.offset + other.bytes;
    if (overlap && (other.writes || access.writes) && clock[other.stream] < other.tick && ++races == 1)
      std::fprintf(stderr, "GPU double: a %s of %zu bytes that processes share without order\n",
                   access.writes ? "write" : "read", access.bytes);
  }
  auto& noted = earlier != nullptr ? *earlier : append(table.noted, table.noted_count);
  noted = {*place, access.bytes, mine, clock[mine], access.writes};
}

void note_written(const void* counter, std::uint32_t value, const SharedClock& clock) {
  const auto place = place_of(counter);
  if (own().table == nullptr || !place) return;
  auto& table = *own().table;
  const Lock lock(table);
  constexpr std::uint32_t kept = 4;  // a stream is at most a meeting ahead of another one
  for (std::uint64_t i = 0; i < table.written_count; ++i)
    if (same(table.written[i].place, *place) && table.written[i].value % kept == value % kept) {
      table.written[i].value = value;
      table.written[i].clock = clock;
      return;
    }
  append(table.written, table.written_count) = {*place, value, clock};
}

void join_written(const void* counter, std::uint32_t value, SharedClock& clock) {
  const auto place = place_of(counter);
  if (own().table == nullptr || !place) return;
  auto& table = *own().table;
  const Lock lock(table);
  for (std::uint64_t i = 0; i < table.written_count; ++i)
    if (same(table.written[i].place, *place) && table.written[i].value == value)
      join(clock, table.written[i].clock);
}

int shared_races() {
  return races;
}

}  // namespace gpu_double
