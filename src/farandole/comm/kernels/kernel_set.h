// The kernels of comm/kernels/kernels.h for each instruction set. Internal to this layer and its tests.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <iterator>
#include <span>

#include "farandole/base/dtype.h"
#include "farandole/comm/kernels/update.h"
#include "farandole/comm/kernels/update_rules.h"

namespace farandole {

// outputs[o][i] = op over k < inputs_count of inputs[k][i]; see comm/kernels/kernels.h.
using ReduceKernel = void (*)(const std::byte* const* inputs, std::size_t inputs_count,
                              std::byte* const* outputs, std::size_t outputs_count, std::size_t count);
// out[i] = in[i] * factor, rounded once; see comm/kernels/kernels.h.
using ConvertKernel = void (*)(const std::byte* in, std::byte* out, std::size_t count, float factor);

// values[i] = bfloat16(values[i]) + narrowed[i]; see comm/kernels/kernels.h.
using AddNarrowedKernel = void (*)(const std::byte* narrowed, std::byte* values, std::size_t count);

// See comm/kernels/update.h. `reduced` may be null.
struct UpdateBuffers {
  std::byte* parameter;
  std::byte* state[update_fields];
  const std::byte* const* gradients;
  std::size_t gradients_count;
  std::byte* reduced;
  std::size_t count;
};
template <class T>
using UpdateKernel = void (*)(const UpdateTerms<T>& terms, const UpdateBuffers& buffers);

struct KernelSet {
  static constexpr std::size_t dtypes = std::size(all_dtypes);  // indexed by DType
  static constexpr std::size_t ops = 5;                         // indexed by ReduceOp
  static constexpr std::size_t rules = 4;                       // indexed by UpdateRule::Kind

  const char* instructions = "";
  ReduceKernel reduce[dtypes][ops] = {};  // null if check_reduction() throws
  ConvertKernel to_float16 = nullptr;     // from and to float32
  ConvertKernel to_bfloat16 = nullptr;
  ConvertKernel from_float16 = nullptr;
  ConvertKernel from_bfloat16 = nullptr;
  AddNarrowedKernel add_bfloat16 = nullptr;
  UpdateKernel<float> update_float32[rules] = {};
  UpdateKernel<double> update_float64[rules] = {};
};

// The sets that this processor can run, best first. The last one is portable.
std::span<const KernelSet* const> kernel_sets();

extern const KernelSet avx512_kernels;  // x86-64 only
extern const KernelSet avx2_kernels;    // x86-64 only
extern const KernelSet portable_kernels;

}  // namespace farandole
