// kernel_sets() for processors that have only the portable kernels.
#include "farandole/comm/kernels/kernel_set.h"

namespace farandole {

std::span<const KernelSet* const> kernel_sets() {
  static constexpr const KernelSet* only[] = {&portable_kernels};
  return only;
}

}  // namespace farandole
