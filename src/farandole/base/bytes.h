// Memory for many bytes that are soon overwritten.
// Thread safety: as std::vector.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace farandole {

// New elements have unspecified values, which saves a pass over them. Large memory lies in huge pages where the kernel has
// them, because it then needs fewer page faults at its first use. Neighbours share a huge page if they are all allocated
// before they are written.
template <class T>
struct LargeAllocator {
  using value_type = T;
  static constexpr std::size_t page = 4096, large = 64 << 10;

  LargeAllocator() = default;
  template <class Other>
  LargeAllocator(const LargeAllocator<Other>&) {}

  T* allocate(std::size_t count) {
    const auto bytes = count * sizeof(T);
    if (bytes < large) return std::allocator<T>().allocate(count);
    void* const memory = ::operator new(bytes, std::align_val_t(page));
    // With the page before it, which has the allocator's header and may lie between two neighbours.
    ::madvise(static_cast<std::byte*>(memory) - page, bytes + page, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) {
    if (count * sizeof(T) < large) return std::allocator<T>().deallocate(memory, count);
    ::operator delete(memory, std::align_val_t(page));
  }
  template <class Element, class... Arguments>
  void construct(Element* at, Arguments&&... arguments) {
    if constexpr (sizeof...(Arguments) == 0)
      ::new (static_cast<void*>(at)) Element;
    else
      ::new (static_cast<void*>(at)) Element(std::forward<Arguments>(arguments)...);
  }
  friend bool operator==(const LargeAllocator&, const LargeAllocator&) { return true; }
};

using Bytes = std::vector<std::byte, LargeAllocator<std::byte>>;

}  // namespace farandole
