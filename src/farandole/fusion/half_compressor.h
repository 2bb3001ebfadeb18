// Gradients of float32 and float64 travel as float16 or bfloat16; others as they are. Used as
// fusion/compressor.h says.
//
// Each rank divides by the number of ranks before it rounds, so that no sum over ranks leaves float16's range
// where the average is within it; a gradient whose average exceeds 65504 becomes infinite, one below 3e-8
// times the number of ranks becomes zero. bfloat16 has float32's range, with 8 bits of precision instead of
// 11.
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
