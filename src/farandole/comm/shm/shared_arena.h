// Memory of one rank that the other ranks of its node can map. It is a memfd: it has no name, does not use
// /dev/shm, and the kernel frees it when the last process that has it ends in any way.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sys/types.h>
#include <vector>

#include "farandole/base/files/file_bytes.h"
#include "farandole/comm/communicator.h"

namespace farandole {

// The information with which another process maps an arena. It opens the owner's descriptor through /proc.
struct ArenaAddress {
  std::int64_t pid = 0;
  std::int64_t fd = -1;  // -1 means that it could not be created
  std::uint64_t bytes = 0;
  // Stored at the arena's start, so that the descriptor of a wrong process is detected.
  std::uint64_t token = 0;
};

// A mapping of an arena in its owner or in a peer.
class ArenaMapping {
 public:
  // A negative descriptor gives memory of this process and its children.
  // Throws: Error if this fails.
  ArenaMapping(int fd, std::size_t bytes);
  ~ArenaMapping();
  ArenaMapping(const ArenaMapping&) = delete;
  ArenaMapping& operator=(const ArenaMapping&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Creates zeroed memory without a name, whose first bytes are a random token.
// Throws: Error if this fails.
OwnedDescriptor create_memory(std::size_t bytes, std::uint64_t& token);
// Throws: Error if the memory cannot be opened or does not match the address.
OwnedDescriptor open_peer(const ArenaAddress& address);
std::unique_ptr<ArenaMapping> map_peer(const ArenaAddress& address);

// The owner's side. The owner touches its pages first, so they are allocated on its NUMA node.
class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  // Creates zeroed memory with `bytes` bytes of address space. The owner may use the first `reserved`
  // bytes as it likes.
  // Throws: Error if this fails.
  static std::shared_ptr<SharedArena> create(std::size_t bytes, std::size_t reserved);

  ArenaAddress address() const;
  // The descriptor is no longer needed after every peer has mapped the arena.
  void close_descriptor() { memory_.reset(); }
  std::byte* data() const { return mapping_->data(); }

  // Returns zeroed memory that keeps the arena alive, or an empty Buffer if the arena or the
  // machine's memory is full.
  Buffer allocate(std::size_t bytes);
  // The offset of [data, data + bytes) in the arena; std::nullopt if the range is not inside it.
  std::optional<std::size_t> offset_of(const void* data, std::size_t bytes) const;

 private:
  SharedArena(std::size_t bytes, std::size_t reserved);
  void release(std::size_t offset);

  std::uint64_t token_ = 0;
  OwnedDescriptor memory_;
  std::unique_ptr<ArenaMapping> mapping_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> used_;  // bytes by offset, in pages
};

// The arenas of all ranks of a node, mapped into this process.
// Thread safety: const methods may run concurrently; others need external synchronization.
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
