// Keeps a program alive that writes to a mapped file whose pages the file system can no longer provide.
// Thread safety: none; use from one thread at a time. No other thread may use the mapping while this is
// created or destroyed.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace farandole {

// The kernel raises SIGBUS at a write to such a page. This happens if another process has shortened the file,
// and on a full copy-on-write file system (btrfs, ZFS), where even space that was allocated before does not
// help. The handler of SIGBUS then puts private memory with the same contents in the place of the page, and
// the write is repeated there. What is written to this page from then on does not reach the file. A SIGBUS
// elsewhere goes to the handler that the process had before.
class PageGuard {
 public:
  // In a process, so many mappings are guarded. For a further one this object has no effect.
  static constexpr std::size_t most = 64;

  PageGuard(std::byte* base, std::size_t bytes);
  ~PageGuard();
  PageGuard(const PageGuard&) = delete;
  PageGuard& operator=(const PageGuard&) = delete;

  // The bytes of the pages that no longer belong to the file.
  std::size_t lost_bytes() const;

 private:
  std::size_t pages_ = 0;
  std::unique_ptr<std::atomic<bool>[]> replaced_;
  std::size_t slot_ = 0;  // most: none was free.
};

}  // namespace farandole
