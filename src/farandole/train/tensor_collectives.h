// Collectives on tensors over the ranks of a session or a group.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <vector>

#include "farandole/comm/reduce_op.h"

namespace farandole {

// Ranks and roots are numbered as in the communicator. Tensors may be non-contiguous. Unless stated
// otherwise, they must have the same shape and type on every rank.
// Throws: UserError if a type or an operation is not supported.
// Collective: every rank of the group must call these functions in the same order.
class TensorCollectives {
 public:
  struct Internals;  // train/collectives_internals.h, which is not installed
  explicit TensorCollectives(std::unique_ptr<Internals> internals);
  ~TensorCollectives();
  TensorCollectives(const TensorCollectives&) = delete;
  TensorCollectives& operator=(const TensorCollectives&) = delete;

  int rank() const;  // Rank of this process in the group, from 0.
  int size() const;  // Number of ranks of the group.

  // Reduces over all ranks; the result is bit-wise the same on each rank.
  torch::Tensor allreduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::average);
  void allreduce_(torch::Tensor& tensor, ReduceOp op = ReduceOp::average);  // In place.
  // Reduces many tensors together. Their shapes and types may differ from each other, and must be the
  // same on every rank.
  std::vector<torch::Tensor> allreduce(const std::vector<torch::Tensor>& tensors,
                                       ReduceOp op = ReduceOp::average);
  void allreduce_(std::vector<torch::Tensor>& tensors, ReduceOp op = ReduceOp::average);
  // Concatenates along the first dimension in rank order. First dimensions may differ between ranks.
  torch::Tensor all_gather(const torch::Tensor& tensor);
  // Copies root's values to every rank, in place.
  void broadcast_(torch::Tensor& tensor, int root = 0);
  // Returns this rank's rows of the reduction: rank r gets n/size of the n rows, and the first n % size
  // ranks get one more.
  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum);
  // Sends splits[r] rows to rank r (default: equal shares). Returns the received rows in rank order. Splits
  // may differ between ranks.
  torch::Tensor all_to_all(const torch::Tensor& tensor, std::vector<std::int64_t> splits = {});
  // Returns when every rank has called it.
  void barrier();

  // Every rank gets the root's parameters and buffers.
  void broadcast(torch::nn::Module& module, int root = 0);
  // Every rank gets rank 0's state and options. The optimizer is Adam, AdamW, SGD, RMSprop, Adagrad or LBFGS.
  void broadcast(torch::optim::Optimizer& optimizer);
  void broadcast(std::string& text, int root = 0);

  Internals& internals() { return *internals_; }

 private:
  std::unique_ptr<Internals> internals_;
};

}  // namespace farandole
