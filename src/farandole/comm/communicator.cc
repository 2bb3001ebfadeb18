#include "farandole/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace farandole {

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::average:
      return "average";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::product:
      return "product";
  }
  return "unknown";
}

Buffer private_memory(std::size_t bytes) {
  constexpr std::align_val_t alignment{64};
  auto* memory = static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 1), alignment));
  std::memset(memory, 0, bytes);
  return Buffer(memory, [](std::byte* data) { ::operator delete[](data, alignment); });
}

void Communicator::barrier(std::string_view name) {
  std::uint8_t token = 0;
  allreduce(name, &token, 1, DType::uint8, ReduceOp::max);
}

}  // namespace farandole
