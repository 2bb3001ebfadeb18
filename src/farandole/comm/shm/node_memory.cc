#include "farandole/comm/shm/node_memory.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <unistd.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

using Reason = std::array<char, 256>;

std::size_t default_bytes(int size) {
  const auto memory =
      static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  // Of 128 TiB address space.
  return std::min(memory, (std::size_t{16} << 40) / static_cast<std::size_t>(size));
}

// Stores the message if `work` throws.
template <class Work>
void attempt(Reason& reason, Work work) {
  try {
    work();
  } catch (const Error& error) {
    if (reason[0] == 0) std::string_view(error.what()).copy(reason.data(), reason.size() - 1);
  }
}

}  // namespace

NodeMemory::NodeMemory(Communicator& bootstrap, std::size_t reserved, std::size_t arena_bytes)
    : mappings_(static_cast<std::size_t>(bootstrap.size)), bases_(mappings_.size()), pids_(mappings_.size()) {
  const std::size_t ranks = mappings_.size();
  Reason reason{};
  ArenaAddress own;
  attempt(reason, [&] {
    arena_ = SharedArena::create(arena_bytes != 0 ? arena_bytes : default_bytes(bootstrap.size), reserved);
    own = arena_->address();
  });
  std::vector<ArenaAddress> addresses(ranks);
  bootstrap.all_gather("addresses of shared memory", &own, addresses.data(),
                       std::vector<std::size_t>(ranks, sizeof own));
  for (std::size_t r = 0; r < ranks; ++r) {
    pids_[r] = static_cast<pid_t>(addresses[r].pid);
    if (static_cast<int>(r) == bootstrap.rank || addresses[r].fd < 0) continue;
    attempt(reason, [&] {
      mappings_[r] = map_peer(addresses[r]);
      bases_[r] = mappings_[r]->data();
    });
  }
  // After this exchange, all ranks have mapped all arenas.
  std::vector<Reason> reasons(ranks);
  bootstrap.all_gather("reasons against shared memory", reason.data(), reasons.data(),
                       std::vector<std::size_t>(ranks, sizeof reason));
  for (std::size_t r = 0; r < ranks; ++r)
    if (reasons[r][0] != 0) throw Error(fmt::format("process {}: {}", addresses[r].pid, reasons[r].data()));
  arena_->close_descriptor();
  bases_[static_cast<std::size_t>(bootstrap.rank)] = arena_->data();
}

Buffer NodeMemory::allocate(std::size_t bytes) const {
  if (auto buffer = arena_->allocate(bytes)) return buffer;
  return private_memory(bytes);
}

}  // namespace farandole
