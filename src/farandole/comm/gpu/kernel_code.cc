#include "farandole/comm/gpu/gpu_kernels.h"

// The assembler includes the file, so that nobody parses it as numbers.
asm(R"(
  .pushsection .rodata
  .balign 16
  .type farandole_kernel_code, @object
farandole_kernel_code:
  .incbin ")" FARANDOLE_KERNELS R"("
farandole_kernel_code_end:
  .popsection
)");

extern "C" const std::byte farandole_kernel_code[], farandole_kernel_code_end[];

namespace farandole {

std::span<const std::byte> kernel_code() {
  return {farandole_kernel_code, farandole_kernel_code_end};
}

}  // namespace farandole
