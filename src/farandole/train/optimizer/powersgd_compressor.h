// Gradients of matrices travel as products of two thin ones. Used as fusion/compressor.h says.
//
// A gradient of n×m elements, the first dimension against all others, is approximated by P Qᵀ with P of n×r
// and Q of m×r: one step of the power iteration that starts from the last step's Q. What the product leaves
// out is added to the next gradient (Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient
// Compression for Distributed Optimization", 2019, algorithms 1 and 2). A bucket takes two allreduces: all
// its P together with what is not worth a product (vectors, scalars, small matrices), then all its Q.
//
// The reducer's thread multiplies and orthogonalises, with as many threads as LibTorch gives it. Ranks agree
// in every bit where they run on equal processors.
#pragma once

#include <ATen/ATen.h>

#include "farandole/comm/scratch_buffer.h"
#include "farandole/fusion/residuals.h"

namespace farandole {

class PowerSgdCompressor : public PlainCompressor {
 public:
  // `tensors` are those of the plans to come; rank: columns of P and Q, at least 1.
  PowerSgdCompressor(const std::vector<TensorSpec>& tensors, int rank);

  // Buckets of 16-bit elements travel as they are.
  void allreduce(Communicator& communicator, std::string_view name, const BucketPlan& plan,
                 std::size_t bucket, std::byte* memory, ReduceOp op) override;
  // Residuals, and each Q as "powersgd_q/NAME".
  std::vector<CompressorState> state() const override;
  void restore(std::span<const CompressorState> state) override;

 private:
  struct Step;  // of one bucket

  bool compresses(std::size_t tensor) const { return factors_[tensor].defined(); }
  // The same on all ranks, and different for every tensor.
  at::Tensor first_factor(std::size_t tensor) const;

  const std::vector<TensorSpec> tensors_;
  const int rank_;
  Residuals residuals_;
  std::vector<at::Tensor> factors_;  // Q by tensor; undefined: not compressed
  ScratchBuffer message_;
};

}  // namespace farandole
