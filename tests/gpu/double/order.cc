#include "gpu/double/order.h"

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "gpu/double/shared_order.h"
#include "gpu/double/streams.h"

namespace {

using gpu_double::Access;
using gpu_double::Clock;

struct Noted {
  int stream;
  Clock clock;
  Access access;

  bool before(const Clock& other) const {
    const auto known = other.find(stream);
    return known != other.end() && known->second >= clock.at(stream);
  }
};

std::mutex mutex;
std::vector<Noted> all;
std::map<const void*, std::size_t> allocated;
int races = 0;

bool overlap(const Access& a, const Access& b) {
  const auto *const a_begin = static_cast<const std::byte*>(a.memory), *const b_begin =
                                                                           static_cast<const std::byte*>(
                                                                               b.memory);
  return a_begin < b_begin + b.bytes && b_begin < a_begin + a.bytes;
}

void count(const char* what, const Access& access) {
  if (++races == 1)
    std::fprintf(stderr, "GPU double: %s %zu bytes at %p without order\n", what, access.bytes, access.memory);
}

}  // namespace

namespace gpu_double {

void join(Clock& into, const Clock& other) {
  for (const auto& [stream, tick] : other) into[stream] = std::max(into[stream], tick);
}

Clock& of_host() {
  thread_local Clock clock;
  return clock;
}

void note(int stream, const Clock& clock, const Access& access) {
  if (access.bytes == 0) return;
  const std::lock_guard lock(mutex);
  const Noted own{stream, clock, access};
  for (const auto& other : all)
    if (other.stream != stream && (access.writes || other.access.writes) && overlap(access, other.access) &&
        !other.before(clock) && !own.before(other.clock))
      count(access.writes ? "a write of" : "a read of", access);
  all.push_back(own);
}

void note_free(const void* memory) {
  const std::lock_guard lock(mutex);
  const auto found = allocated.find(memory);
  if (found == allocated.end()) return;
  const Access freed{memory, found->second, true};
  allocated.erase(found);
  for (const auto& other : all)
    if (overlap(freed, other.access) && !other.before(of_host())) count("freed", freed);
  std::erase_if(all, [&](const Noted& other) { return overlap(freed, other.access); });
}

void note_allocation(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  allocated[memory] = bytes;
  std::erase_if(all, [&](const Noted& other) { return overlap({memory, bytes, true}, other.access); });
}

}  // namespace gpu_double

extern "C" int gpu_double_races() {
  const std::lock_guard lock(mutex);
  return races + gpu_double::shared_races();
}
