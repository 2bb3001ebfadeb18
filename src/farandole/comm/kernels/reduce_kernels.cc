#include "farandole/comm/kernels/reduce_kernels.h"

#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/mpi/mpi_types.h"

namespace farandole {

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs, std::size_t count,
            DType dtype, ReduceOp op) {
  check_reduction(op, dtype);
  const auto kernel =
      kernel_sets().front()->reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
  kernel(inputs.data(), inputs.size(), outputs.data(), outputs.size(), count);
}

}  // namespace farandole
