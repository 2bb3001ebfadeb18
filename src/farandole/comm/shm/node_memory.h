// The arenas of all ranks of a node, mapped into this one. Usable from any thread once made.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/shm/shared_arena.h"

namespace farandole {

class NodeMemory {
 public:
  // Collective over `bootstrap`. The first `reserved` bytes of each arena are the caller's; `arena_bytes` is
  // the address space a rank, 0: as much as the machine has memory. Throws Error on all ranks, with the first
  // reason, where they cannot share memory.
  NodeMemory(Communicator& bootstrap, std::size_t reserved, std::size_t arena_bytes);

  std::byte* base(int rank) const { return bases_[static_cast<std::size_t>(rank)]; }  // of its arena, here
  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  // This rank's arena. Where it is full: zeroed memory of this process alone.
  Buffer allocate(std::size_t bytes) const;
  std::optional<std::size_t> offset_of(const void* data, std::size_t bytes) const {
    return arena_->offset_of(data, bytes);
  }

 private:
  std::shared_ptr<SharedArena> arena_;
  std::vector<std::unique_ptr<ArenaMapping>> mappings_;  // by rank; none for this one
  std::vector<std::byte*> bases_;
  std::vector<pid_t> pids_;
};

}  // namespace farandole
