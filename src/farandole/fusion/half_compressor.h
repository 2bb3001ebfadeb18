// Reduces float32 and float64 gradients as float16 or bfloat16, and others unchanged.
// Thread safety: none; use from one thread at a time. The rules of fusion/compressor.h apply.
//
// Each rank divides by the number of ranks before rounding. So if the average is in the range of
// float16, no partial sum exceeds it. A gradient whose average exceeds 65504 becomes infinite, and one
// below 3e-8 times the number of ranks becomes zero. bfloat16 has the range of float32, with 8 bits of
// precision instead of 11.
#pragma once

#include "farandole/comm/scratch_buffer.h"
#include "farandole/fusion/compressor.h"

namespace farandole {

class HalfCompressor : public PlainCompressor {
 public:
  explicit HalfCompressor(DType dtype);  // float16 or bfloat16

  void allreduce(Communicator& communicator, std::string_view name, const BucketPlan& plan,
                 std::size_t bucket, std::byte* memory, ReduceOp op) override;

 private:
  const DType dtype_;
  ScratchBuffer halves_;
};

}  // namespace farandole
