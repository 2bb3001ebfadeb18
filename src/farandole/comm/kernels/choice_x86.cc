// kernel_sets() on x86-64.
#include <cpuid.h>

#include "farandole/comm/kernels/kernel_set.h"

namespace farandole {
namespace {

// Clang 14 does not know this name in __builtin_cpu_supports.
bool supports_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

struct Choice {
  const KernelSet* sets[3] = {};
  std::size_t count = 0;

  Choice() {
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && supports_f16c();
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    if (v4) sets[count++] = &avx512_kernels;
    if (v3) sets[count++] = &avx2_kernels;
    sets[count++] = &portable_kernels;
  }
};

}  // namespace

std::span<const KernelSet* const> kernel_sets() {
  static const Choice choice;
  return {choice.sets, choice.count};
}

}  // namespace farandole
