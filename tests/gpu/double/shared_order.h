// Finds work of several processes that uses the same memory without order, as order.h does within a process.
// What orders it is only known when it runs: a stream that waits for a number which another process writes
// learns what was done before. The processes share a table, in the file whose descriptor is in the
// environment variable GPU_DOUBLE_SHARED; without it, nothing is checked.
// Thread safety: any thread may call this at any time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gpu/double/order.h"

namespace gpu_double {

// For each stream of each process, up to which piece of its work.
using SharedClock = std::array<std::uint64_t, 128>;

void join(SharedClock& into, const SharedClock& other);
// What the calling thread of the host has waited for.
SharedClock& shared_of_host();
// The place in clocks of a stream of this process.
std::size_t shared_place(int stream);

// Memory that other processes can map: the file and where in it. Known until it is forgotten.
void know_shared(const void* memory, std::size_t bytes, std::uint64_t file, std::uint64_t offset);
void forget_shared(const void* memory);

// As note() of order.h, at the moment at which the work runs.
void note_shared(int stream, const SharedClock& clock, const Access& access);
// A stream writes a number, or has waited for one. Numbers of one counter follow each other.
void note_written(const void* counter, std::uint32_t value, const SharedClock& clock);
void join_written(const void* counter, std::uint32_t value, SharedClock& clock);

int shared_races();  // found by this process

}  // namespace gpu_double
