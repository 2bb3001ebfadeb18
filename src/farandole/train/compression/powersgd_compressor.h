// Compresses the gradients of matrices as products of two thin matrices.
// Thread safety: none; use from one thread at a time. The rules of fusion/compressor.h apply.
//
// A gradient is seen as an n×m matrix: the first dimension against all others. It is approximated by P Qᵀ
// with P of n×r and Q of m×r, from one step of a power iteration that starts from the last step's Q. The
// residual is added to the next gradient (Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient
// Compression for Distributed Optimization", 2019, algorithms 1 and 2). A bucket needs two allreduces: first
// all P together with the tensors that are not compressed (vectors, scalars, small matrices), then all Q.
//
// The thread that reduces also multiplies and orthogonalizes, with LibTorch's number of threads. Ranks get
// bit-wise equal results if they run on equal processors.
#pragma once

#include <ATen/ATen.h>

#include "farandole/comm/scratch_buffer.h"
#include "farandole/fusion/compressor.h"

namespace farandole {

class PowerSgdCompressor : public PlainCompressor {
 public:
  // `tensors` are those of all later plans. `rank`: number of columns of P and Q, at least 1.
  PowerSgdCompressor(const std::vector<TensorSpec>& tensors, int rank);

  // Buckets of 16-bit elements are not compressed.
  void allreduce(Communicator& communicator, std::string_view name, const BucketPlan& plan,
                 std::size_t bucket, std::byte* memory, ReduceOp op) override;
  // Returns the residuals, and each Q as "powersgd_q/NAME".
  std::vector<CompressorState> state() const override;
  void restore(std::span<const CompressorState> state) override;

 private:
  struct Step;  // The step of one bucket.

  bool compresses(std::size_t tensor) const { return factors_[tensor].defined(); }
  // Equal on all ranks, and different for each tensor.
  at::Tensor first_factor(std::size_t tensor) const;

  const std::vector<TensorSpec> tensors_;
  const int rank_;
  Residuals residuals_;
  std::vector<at::Tensor> factors_;  // Q, indexed by tensor; undefined: not compressed.
  ScratchBuffer message_;
};

}  // namespace farandole
