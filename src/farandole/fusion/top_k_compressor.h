// Sends only the largest gradients of each bucket, as pairs of index and value. The others are added
// in the next step.
// Thread safety: none; use from one thread at a time. The rules of fusion/compressor.h apply.
//
// Every rank adds the values that it has not sent so far to its gradients. It sends the k largest results to
// all ranks and keeps the others (error feedback: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory",
// 2018; Lin et al., "Deep Gradient Compression", 2018). So over all steps, the sum of the sent values differs
// from the sum of the gradients only by the last residual.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farandole/fusion/compressor.h"

namespace farandole {

class TopKCompressor : public PlainCompressor {
 public:
  // `tensors` are those of all later plans. `fraction` is the share of a bucket's elements that is
  // sent, in (0, 1].
  TopKCompressor(const std::vector<TensorSpec>& tensors, double fraction);

  // Buckets of 16-bit elements are reduced unchanged.
  void allreduce(Communicator& communicator, std::string_view name, const BucketPlan& plan,
                 std::size_t bucket, std::byte* memory, ReduceOp op) override;
  std::vector<CompressorState> state() const override;
  void restore(std::span<const CompressorState> state) override;

 private:
  template <class T>
  void allreduce_sparse(Communicator& communicator, std::string_view name, const Bucket& bucket, T* memory,
                        ReduceOp op);

  const double fraction_;
  Residuals residuals_;
  std::vector<std::uint32_t> indices_;
  std::vector<std::byte> message_;
  std::vector<std::byte> messages_;  // of all ranks
};

// Ascending indices of the k numbers with the largest magnitude, or all if there are fewer. For equal
// magnitudes, the first ones are selected. Magnitudes are compared as float32, and NaN counts as the largest.
// The time is linear in values.size(), which must be below 2^32.
template <class T>
void select_largest(std::span<const T> values, std::size_t k, std::vector<std::uint32_t>& indices);

extern template void select_largest(std::span<const float>, std::size_t, std::vector<std::uint32_t>&);
extern template void select_largest(std::span<const double>, std::size_t, std::vector<std::uint32_t>&);

}  // namespace farandole
