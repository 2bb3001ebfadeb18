#include "farandole/comm/gpu/gpu_kernels.h"

#include <algorithm>

#include "farandole/base/error.h"
#include "farandole/comm/gpu/cuda_functions.h"
#include "farandole/comm/gpu/kernel_jobs.h"

namespace farandole {
namespace {

constexpr unsigned threads_of_block = 256;
// More blocks than any GPU runs at once; each thread takes several vectors.
constexpr std::uint64_t most_blocks = 1024;

std::uint64_t blocks_for(std::uint64_t bytes) {
  const std::uint64_t vectors = bytes / sizeof(DeviceVector) + 1;
  return std::min(most_blocks, (vectors + threads_of_block - 1) / threads_of_block);
}

std::uint64_t exponent_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return 0x7c00;
    case DType::bfloat16:
      return 0x7f80;
    case DType::float32:
      return 0x7f80'0000;
    case DType::float64:
      return 0x7ff0'0000'0000'0000;
    default:
      throw UserError("only floating-point numbers can be infinite");
  }
}

}  // namespace

GpuKernels::GpuKernels(std::shared_ptr<const GpuRuntime> runtime) : runtime_(std::move(runtime)) {
  const auto& cuda = runtime_->functions();
  cudaLibrary_t library = nullptr;
  cuda.check(cuda.library_load_data(&library, kernel_code().data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
             "cudaLibraryLoadData of Farandole's kernels");
  const auto find = [&](const void*& kernel, const char* name) {
    cudaKernel_t found = nullptr;
    cuda.check(cuda.library_get_kernel(&found, library, name), "cudaLibraryGetKernel");
    kernel = found;
  };
  find(copy_, "farandole_copy");
  find(scan_, "farandole_scan_nonfinite");
  find(reduce_, "farandole_reduce_peers");
  load();
}

// CUDA loads a kernel at its first launch, and may then wait for all work of the device. In the first
// collective, this would be work that waits for other ranks.
void GpuKernels::load() const {
  const GpuStream stream(runtime_);
  const BatchedCopy nothing{};
  launch(copy_, 1, &nothing, stream.handle());
  const NonfiniteScan no_elements{};
  launch(scan_, 1, &no_elements, stream.handle());
  const PeerReduction no_inputs{};
  launch(reduce_, 1, &no_inputs, stream.handle());
}

void GpuKernels::launch(const void* kernel, std::uint64_t blocks, const void* argument,
                        CUstream_st* stream) const {
  const auto& cuda = runtime_->functions();
  void* arguments[] = {const_cast<void*>(argument)};
  cuda.check(cuda.launch_kernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(threads_of_block),
                                arguments, 0, stream),
             "cudaLaunchKernel");
}

std::uint64_t GpuKernels::number_parts(std::span<CopyPiece> pieces) {
  std::uint64_t parts = 0;
  for (auto& piece : pieces) {
    piece.first_part = parts;
    parts += copy_parts(piece.bytes);
  }
  return parts;
}

void GpuKernels::copy(const BatchedCopy& table, std::uint64_t parts, CUstream_st* stream) const {
  if (parts > 0) launch(copy_, parts, &table, stream);
}

void GpuKernels::find_nonfinite(const void* data, std::size_t count, DType dtype, std::uint64_t* first,
                                float* found, CUstream_st* stream, std::size_t offset) const {
  NonfiniteScan scan{data,  count, static_cast<std::uint32_t>(size_of(dtype)), exponent_of(dtype), first,
                     found, offset};
  launch(scan_, blocks_for(count * size_of(dtype)), &scan, stream);
}

void GpuKernels::reduce(const PeerReduction& job, CUstream_st* stream) const {
  if (job.count > 0) launch(reduce_, blocks_for(job.count * size_of(job.dtype)), &job, stream);
}

}  // namespace farandole
