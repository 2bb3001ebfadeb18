// Finds work of the test double of CUDA that uses the same memory without order. It does not depend on how
// fast anything runs: each piece of work knows which earlier work it follows, from its stream, from events,
// and from what the host has waited for (vector clocks).
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace gpu_double {

// For each stream, up to which piece of its work.
using Clock = std::map<int, std::uint64_t>;

struct Access {
  const void* memory;
  std::size_t bytes;
  bool writes;
};

void join(Clock& into, const Clock& other);
// What the calling thread of the host has waited for.
Clock& of_host();

// Work number `clock.at(stream)` of the stream has this access. Counts a race if another one that overlaps
// has no order.
void note(int stream, const Clock& clock, const Access& access);
// The host frees memory, which is a race if work uses it for which the host has not waited. Nobody has
// used new memory.
void note_free(const void* memory);
void note_allocation(const void* memory, std::size_t bytes);

}  // namespace gpu_double
