// What the ranks of a job know of each other, and its bytes in messages.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "farandole/comm/control/addresses.h"

namespace farandole {

struct RankFacts {
  std::string host{};         // empty for a rank that has not come
  std::uint64_t node = 0;     // equal for ranks that can share memory and Unix sockets
  std::uint64_t machine = 0;  // equal for ranks of one kernel: several nodes can be containers
  std::uint32_t clock = 0;    // clock_id()
  std::vector<Address> addresses{};
};

// Of this process, without addresses.
RankFacts own_facts();

void append(std::vector<std::byte>& to, const RankFacts& facts);
// Takes the facts from the front of `bytes`. Throws: Error if they are damaged.
RankFacts take_facts(std::span<const std::byte>& bytes);

}  // namespace farandole
