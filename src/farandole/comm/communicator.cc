#include "farandole/comm/communicator.h"

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

void Communicator::barrier(std::string_view name) {
  std::uint8_t token = 0;
  allreduce(name, &token, 1, DType::uint8, ReduceOp::max);
}

}  // namespace farandole
