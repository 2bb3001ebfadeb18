// The kernels of this library. Their code for all kinds of GPUs is part of the program.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "farandole/base/dtype.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/gpu/kernel_jobs.h"

namespace farandole {

// The kernels as nvcc has compiled them, for several kinds of GPUs.
std::span<const std::byte> kernel_code();

class GpuKernels {
 public:
  // Throws: Error if the GPU is older than those for which the kernels were compiled.
  explicit GpuKernels(std::shared_ptr<const GpuRuntime> runtime);

  // All functions queue at most one launch on the stream and return.

  // Sets the pieces' first parts, and returns how many parts there are.
  static std::uint64_t number_parts(std::span<CopyPiece> pieces);
  // Copies the pieces of a table that is in memory of the device. Does nothing without parts.
  void copy(const BatchedCopy& table, std::uint64_t parts, CUstream_st* stream) const;
  // Lowers *first to the number of the first element that is not finite, and sets *found to 1 if
  // there is one. Both are in memory of the device. `data` is aligned to 16 bytes; its first element
  // has the number `offset`.
  void find_nonfinite(const void* data, std::size_t count, DType dtype, std::uint64_t* first, float* found,
                      CUstream_st* stream, std::size_t offset = 0) const;
  // Does nothing without elements.
  void reduce(const PeerReduction& job, CUstream_st* stream) const;

 private:
  void load() const;
  void launch(const void* kernel, std::uint64_t blocks, const void* argument, CUstream_st* stream) const;

  const std::shared_ptr<const GpuRuntime> runtime_;
  const void *copy_ = nullptr, *scan_ = nullptr, *reduce_ = nullptr;
};

}  // namespace farandole
