// Memory of one rank that the other ranks of its node can map. It is a memfd: it has no name anywhere, takes
// no room in /dev/shm, and the kernel frees it with the last process that has it, however that ends. Usable
// from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sys/types.h>

#include "farandole/comm/communicator.h"

namespace farandole {

// What another process needs to map an arena: it opens the owner's descriptor through /proc.
struct ArenaAddress {
  std::int64_t pid = 0;
  std::int64_t fd = -1;  // -1: could not be made
  std::uint64_t bytes = 0;
  std::uint64_t token = 0;  // stands at the arena's start, so that the wrong process's descriptor is noticed
};

// A mapping of an arena, the owner's or a peer's.
class ArenaMapping {
 public:
  ArenaMapping(int fd, std::size_t bytes);  // throws Error
  ~ArenaMapping();
  ArenaMapping(const ArenaMapping&) = delete;
  ArenaMapping& operator=(const ArenaMapping&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Throws Error where it cannot be opened or is not the arena that the address speaks of.
std::unique_ptr<ArenaMapping> map_peer(const ArenaAddress& address);

// The owner's side. Its pages are allocated when they are first used, by the rank that owns them and so on
// its NUMA node.
class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  // `bytes` of address space, the first `reserved` of which are the owner's to lay out; zeroed. Throws Error.
  static std::shared_ptr<SharedArena> create(std::size_t bytes, std::size_t reserved);
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  ArenaAddress address() const;
  // The descriptor is no longer needed once every peer has mapped the arena.
  void close_descriptor();
  std::byte* data() const { return mapping_->data(); }

  // Zeroed memory that keeps the arena alive; an empty Buffer where the arena or the machine is full.
  Buffer allocate(std::size_t bytes);
  // Where [data, data + bytes) lies in the arena, if it does.
  std::optional<std::size_t> offset_of(const void* data, std::size_t bytes) const;

 private:
  SharedArena(int fd, std::size_t bytes, std::size_t reserved);
  void release(std::size_t offset);

  int fd_ = -1;
  std::uint64_t token_ = 0;
  std::unique_ptr<ArenaMapping> mapping_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> used_;  // offset → bytes, in pages
};

}  // namespace farandole
