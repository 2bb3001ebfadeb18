// The arenas of all ranks of a node, mapped into this process.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/shm/shared_arena.h"

namespace farandole {

class NodeMemory {
 public:
  // The caller may use the first `reserved` bytes of each arena. `arena_bytes` is the address space per rank;
  // 0 means the size of the machine's memory.
  // Throws: Error on all ranks, with the first reason, if they cannot share memory.
  // Collective: every rank of `bootstrap` must call this in the same order.
  NodeMemory(Communicator& bootstrap, std::size_t reserved, std::size_t arena_bytes);

  // Start of the rank's arena in this process.
  std::byte* base(int rank) const { return bases_[static_cast<std::size_t>(rank)]; }
  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  // Allocates from this rank's arena. If it is full, returns zeroed memory of this process alone.
  Buffer allocate(std::size_t bytes) const;
  std::optional<std::size_t> offset_of(const void* data, std::size_t bytes) const {
    return arena_->offset_of(data, bytes);
  }

 private:
  std::shared_ptr<SharedArena> arena_;
  std::vector<std::unique_ptr<ArenaMapping>> mappings_;  // by rank; null for this rank
  std::vector<std::byte*> bases_;
  std::vector<pid_t> pids_;
};

}  // namespace farandole
