// Collectives on tensors among the ranks of a session or a group.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <torch/torch.h>
#include <vector>

#include "farandole/comm/reduce_op.h"

namespace farandole {

// Ranks and roots are numbered as in the group. Tensors are on the CPU and may be non-contiguous; their shape
// and type are the same on every rank, where nothing else is said.
// Collective: every rank of the group must call this in the same order. This holds for all functions but
// rank() and size().
// Throws: UserError, from each function, for a type or an operation that makes no sense, and on every rank
// where the ranks' calls differ. Error with ExitCode::peer_lost where another rank was lost.
class TensorCollectives {
 public:
  struct Internals;  // train/internals.h, which is not installed
  explicit TensorCollectives(std::unique_ptr<Internals> internals);
  ~TensorCollectives();
  TensorCollectives(const TensorCollectives&) = delete;
  TensorCollectives& operator=(const TensorCollectives&) = delete;

  int rank() const;  // of this process in the group, from 0
  int size() const;  // ranks of the group

  // The tensor reduced over all ranks; bit-wise the same on each. The result has no gradient.
  torch::Tensor allreduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::average);
  void allreduce_(torch::Tensor& tensor, ReduceOp op = ReduceOp::average);  // in place
  // Many tensors in one collective an element type. Their shapes and types may differ from each other, and
  // are the same on every rank.
  std::vector<torch::Tensor> allreduce(const std::vector<torch::Tensor>& tensors,
                                       ReduceOp op = ReduceOp::average);
  void allreduce_(std::vector<torch::Tensor>& tensors, ReduceOp op = ReduceOp::average);
  // [n_r, …] of rank r → [sum of n_r, …], in rank order: the first dimension may differ between ranks.
  torch::Tensor all_gather(const torch::Tensor& tensor);
  // In place: every rank gets the root's values.
  void broadcast_(torch::Tensor& tensor, int root = 0);
  // [n, …] → this rank's rows of the reduction: the n rows are dealt in rank order, and the first n % size
  // ranks get one row more.
  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum);
  // [n, …], of which splits[r] rows go to rank r (default: equal shares) → the rows that arrived, in rank
  // order. Splits may differ between ranks, and add up to n.
  torch::Tensor all_to_all(const torch::Tensor& tensor, std::vector<std::int64_t> splits = {});
  // Returns when every rank has called it.
  void barrier();

  // Every rank gets the root's parameters and buffers.
  void broadcast(torch::nn::Module& module, int root = 0);
  // Every rank gets rank 0's state and options. The optimizer is Adam, AdamW, SGD, RMSprop or Adagrad.
  void broadcast(torch::optim::Optimizer& optimizer);
  void broadcast(std::string& text, int root = 0);

  Internals& internals() { return *internals_; }

 private:
  std::unique_ptr<Internals> internals_;
};

}  // namespace farandole
