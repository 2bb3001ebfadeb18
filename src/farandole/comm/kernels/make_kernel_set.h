// Builds the table of an instruction set's kernels. The rules of comm/kernels/vector_kernels.h apply.
#pragma once

#include "farandole/comm/communicator.h"
#include "farandole/comm/kernels/conversions.h"
#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/kernels/vector_kernels.h"

namespace farandole {

template <class Isa, class Unit, class Arithmetic>
constexpr void set_reductions(ReduceKernel (&kernels)[KernelSet::ops]) {
  kernels[static_cast<int>(ReduceOp::sum)] = reduce_any<Isa, Unit, SumOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::average)] = average_any<Isa, Unit, Arithmetic>;
  kernels[static_cast<int>(ReduceOp::min)] = reduce_any<Isa, Unit, MinOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::max)] = reduce_any<Isa, Unit, MaxOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::product)] = reduce_any<Isa, Unit, ProductOf, Unchanged>;
}

// Unsigned sums and products have the same bits as signed ones and may wrap around.
template <class Isa, class Signed, class Unsigned>
constexpr void set_integer_reductions(ReduceKernel (&kernels)[KernelSet::ops]) {
  kernels[static_cast<int>(ReduceOp::sum)] = reduce_any<Isa, Plain<Isa, Unsigned>, SumOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::min)] = reduce_any<Isa, Plain<Isa, Signed>, MinOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::max)] = reduce_any<Isa, Plain<Isa, Signed>, MaxOf, Unchanged>;
  kernels[static_cast<int>(ReduceOp::product)] = reduce_any<Isa, Plain<Isa, Unsigned>, ProductOf, Unchanged>;
}

template <class Isa>
constexpr KernelSet make_kernel_set(const char* instructions) {
  using std::int32_t, std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t;
  KernelSet set;
  set.instructions = instructions;
  const auto of = [&set](DType dtype) -> auto& {
    return set.reduce[static_cast<int>(dtype)];
  };
  set_reductions<Isa, Float16Unit<Isa>, float>(of(DType::float16));
  set_reductions<Isa, BFloat16Unit<Isa>, float>(of(DType::bfloat16));
  set_reductions<Isa, Plain<Isa, float>, float>(of(DType::float32));
  set_reductions<Isa, Plain<Isa, double>, double>(of(DType::float64));
  set_integer_reductions<Isa, int32_t, uint32_t>(of(DType::int32));
  set_integer_reductions<Isa, int64_t, uint64_t>(of(DType::int64));
  set_integer_reductions<Isa, uint8_t, uint8_t>(of(DType::uint8));
  auto& boolean = of(DType::boolean);
  boolean[static_cast<int>(ReduceOp::min)] = reduce_any<Isa, Plain<Isa, uint8_t>, AndOf, Unchanged>;
  boolean[static_cast<int>(ReduceOp::max)] = reduce_any<Isa, Plain<Isa, uint8_t>, OrOf, Unchanged>;
  boolean[static_cast<int>(ReduceOp::product)] = boolean[static_cast<int>(ReduceOp::min)];
  set.to_float16 = Conversion<Isa, FloatPair<Isa>, Float16Unit<Isa>>::run;
  set.to_bfloat16 = Conversion<Isa, FloatPair<Isa>, BFloat16InOrder<Isa>>::run;
  set.from_float16 = Conversion<Isa, Float16Unit<Isa>, FloatPair<Isa>>::run;
  set.from_bfloat16 = Conversion<Isa, BFloat16InOrder<Isa>, FloatPair<Isa>>::run;
  return set;
}

}  // namespace farandole
