// Reduces float32 and float64 gradients as float16 or bfloat16, and others unchanged.
// Thread safety: none; use from one thread at a time. The thread that reduces calls it.
//
// Each rank divides by the number of ranks before rounding. So if the average is in the range of
// float16, no partial sum exceeds it. A gradient whose average exceeds 65504 becomes infinite, and one
// below 3e-8 times the number of ranks becomes zero. bfloat16 has the range of float32, with 8 bits of
// precision instead of 11.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"
#include "farandole/fusion/compression.h"

namespace farandole {

// The type in which each rank sends its gradients; no value: in their own.
std::optional<DType> sent_as(const Compression& compression);

class HalfCompressor {
 public:
  explicit HalfCompressor(DType dtype);  // float16 or bfloat16

  // Reduces the bucket, whose elements are at `memory`, in place. Afterwards all ranks have the same bits.
  // `op` is sum or average.
  // Collective: every rank of the group must call this in the same order.
  void allreduce(Communicator& communicator, std::string_view name, const Bucket& bucket, std::byte* memory,
                 ReduceOp op);
  // Returns the bytes that this rank sends instead of the bucket.
  std::size_t bytes_for(const Bucket& bucket) const;

 private:
  const DType dtype_;
  ScratchBuffer halves_;
};

}  // namespace farandole
