#include "farandole/comm/private_memory.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace farandole {

Buffer private_memory(std::size_t bytes) {
  constexpr std::align_val_t alignment{64};
  auto* memory = static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 1), alignment));
  std::memset(memory, 0, bytes);
  return Buffer(memory, [](std::byte* data) { ::operator delete[](data, alignment); });
}

}  // namespace farandole
