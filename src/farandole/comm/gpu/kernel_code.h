// The kernels as nvcc has compiled them, for several kinds of GPUs.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <span>

namespace farandole {

std::span<const std::byte> kernel_code();

}  // namespace farandole
