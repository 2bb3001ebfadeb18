// Memory for many bytes that are soon overwritten, and how the process treats memory that it has freed.
// Thread safety: none; use from one thread at a time. Vectors on several threads may share a MemoryBlock.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace farandole {

// Memory directly from the kernel, in huge pages where it has them, because it then needs fewer page faults
// at its first use. What malloc writes beside its blocks would keep neighbours apart, which otherwise share
// a huge page.
// Throws: std::bad_alloc.
inline void* map_memory(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

// Memory for many vectors whose sizes become known one after the other. It exists before the first of
// them is written, so they can share huge pages. Memory that no vector got is never used. A vector keeps
// its block alive.
class MemoryBlock {
 public:
  explicit MemoryBlock(std::size_t bytes)
      : bytes_(bytes), memory_(bytes == 0 ? nullptr : static_cast<std::byte*>(map_memory(bytes))) {}
  ~MemoryBlock() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;

  // Returns nullptr if so much is not left.
  void* take(std::size_t bytes) {
    constexpr std::size_t alignment = 64;  // of a cache line
    auto begin = used_.load();
    std::size_t end = 0;
    do {
      if (bytes > bytes_ - begin) return nullptr;
      end = begin + (bytes + alignment - 1) / alignment * alignment;
    } while (!used_.compare_exchange_weak(begin, end < bytes_ ? end : bytes_));
    return memory_ + begin;
  }
  bool contains(const void* memory) const {
    const auto* const at = static_cast<const std::byte*>(memory);
    return std::less_equal<>()(memory_, at) && std::less<>()(at, memory_ + bytes_);
  }

 private:
  std::size_t bytes_;
  std::byte* memory_;
  std::atomic<std::size_t> used_ = 0;
};

// New elements have unspecified values, which saves a pass over them. Large memory comes from the kernel, or
// all memory from a block while the block has some left. Copies of a vector do not use its block.
template <class T>
struct LargeAllocator {
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  static constexpr std::size_t large = 256 << 10;

  LargeAllocator() = default;
  // There is no move, which would take the block from the moved allocator.
  LargeAllocator(const LargeAllocator&) = default;
  LargeAllocator& operator=(const LargeAllocator&) = default;
  explicit LargeAllocator(std::shared_ptr<MemoryBlock> memory) : block(std::move(memory)) {}
  template <class Other>
  LargeAllocator(const LargeAllocator<Other>& other) : block(other.block) {}

  T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) throw std::bad_alloc();
    if (block)
      if (void* const taken = block->take(count * sizeof(T))) return static_cast<T*>(taken);
    if (count < large / sizeof(T)) return std::allocator<T>().allocate(count);
    return static_cast<T*>(map_memory(whole_pages(count)));
  }
  void deallocate(T* memory, std::size_t count) {
    if (block && block->contains(memory)) return;
    if (count < large / sizeof(T)) return std::allocator<T>().deallocate(memory, count);
    ::munmap(memory, whole_pages(count));
  }
  template <class Element, class... Arguments>
  void construct(Element* at, Arguments&&... arguments) {
    if constexpr (sizeof...(Arguments) == 0)
      ::new (static_cast<void*>(at)) Element;
    else
      ::new (static_cast<void*>(at)) Element(std::forward<Arguments>(arguments)...);
  }
  LargeAllocator select_on_container_copy_construction() const { return {}; }
  friend bool operator==(const LargeAllocator& a, const LargeAllocator& b) { return a.block == b.block; }

  std::shared_ptr<MemoryBlock> block;

 private:
  static std::size_t whole_pages(std::size_t count) {
    constexpr std::size_t most = 64 << 10;  // bytes of a page, of all machines
    return (count * sizeof(T) + most - 1) / most * most;
  }
};

using Bytes = std::vector<std::byte, LargeAllocator<std::byte>>;

// Keeps freed blocks, also large ones, in the process for later allocations. A training step allocates and
// frees the same large tensors again and again, and each block that comes fresh from the system costs one
// page fault per 4 KiB. Returns false and does nothing if the user has tuned malloc with environment
// variables, or if the C library is not glibc.
bool keep_freed_memory();

}  // namespace farandole
