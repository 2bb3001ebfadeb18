// Of each bucket only the largest gradients travel, as pairs of index and value; the rest waits for the next
// step. Used as fusion/compressor.h says.
//
// Every rank adds what it has not sent so far to its gradients, sends the k largest of them to all ranks and
// keeps the others (error feedback: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", 2018; Lin et al.,
// "Deep Gradient Compression", 2018). So the sum over steps of what was sent differs from the sum of the
// gradients by the last residual only.
#pragma once

#include "farandole/fusion/residuals.h"

namespace farandole {

class TopKCompressor : public PlainCompressor {
 public:
  // `tensors` are those of the plans to come; fraction of a bucket's elements that travels, in (0, 1].
  TopKCompressor(const std::vector<TensorSpec>& tensors, double fraction);

  // Buckets of 16-bit elements travel as they are.
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

}  // namespace farandole
