// What the files of the kernels hand to the one that chooses.
#pragma once

#include "farandole/comm/kernels/kernel_set.h"

namespace farandole {

extern const KernelSet avx512_kernels;  // x86-64 only
extern const KernelSet avx2_kernels;    // x86-64 only
extern const KernelSet portable_kernels;

}  // namespace farandole
