// Memory for many bytes that are soon overwritten.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace farandole {

// New elements have unspecified values, which saves a pass over them. Large memory lies in huge pages where
// the kernel has them, because it then needs fewer page faults at its first use. It comes from the kernel
// directly: what malloc writes beside its blocks would keep neighbours apart, which otherwise share a huge
// page if all are allocated before they are written.
template <class T>
struct LargeAllocator {
  using value_type = T;
  static constexpr std::size_t large = 256 << 10;

  LargeAllocator() = default;
  template <class Other>
  LargeAllocator(const LargeAllocator<Other>&) {}

  T* allocate(std::size_t count) {
    if (count < large / sizeof(T)) return std::allocator<T>().allocate(count);
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) throw std::bad_alloc();
    const auto bytes = whole_pages(count);
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) {
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
  friend bool operator==(const LargeAllocator&, const LargeAllocator&) { return true; }

 private:
  static std::size_t whole_pages(std::size_t count) {
    constexpr std::size_t most = 64 << 10;  // bytes of a page, of all machines
    return (count * sizeof(T) + most - 1) / most * most;
  }
};

using Bytes = std::vector<std::byte, LargeAllocator<std::byte>>;

}  // namespace farandole
