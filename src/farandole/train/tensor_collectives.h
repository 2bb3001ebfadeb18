// Collectives on tensors among the ranks of a session or a group. Used by the training thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <torch/torch.h>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/wrap/join_communicator.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/train/fused_allreduce.h"

namespace farandole {

// Every rank calls the same ones in the same order; ranks and roots are numbered as in the communicator.
// Tensors may be non-contiguous; on every rank the same shape and type, where nothing else is said. All throw
// UserError for types or operations that make no sense.
class TensorCollectives {
 public:
  explicit TensorCollectives(std::unique_ptr<TracedCommunicator> communicator = {});
  ~TensorCollectives();
  TensorCollectives(const TensorCollectives&) = delete;
  TensorCollectives& operator=(const TensorCollectives&) = delete;

  int rank() const { return communicator_->rank; }
  int size() const { return communicator_->size; }

  // Reduced over all ranks; bit-wise the same on each.
  torch::Tensor allreduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::average);
  void allreduce_(torch::Tensor& tensor, ReduceOp op = ReduceOp::average);  // in place
  // Many tensors as one: their shapes and types may differ, and are the same on every rank.
  std::vector<torch::Tensor> allreduce(const std::vector<torch::Tensor>& tensors,
                                       ReduceOp op = ReduceOp::average);
  void allreduce_(std::vector<torch::Tensor>& tensors, ReduceOp op = ReduceOp::average);
  // Joined along the first dimension in rank order; first dimensions may differ between ranks.
  torch::Tensor all_gather(const torch::Tensor& tensor);
  // In place: root's values on every rank.
  void broadcast_(torch::Tensor& tensor, int root = 0);
  // This rank's rows of the reduction: rank r gets rows [r·n/size …) of the n rows, the first n % size ranks
  // one more.
  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum);
  // splits[r] rows go to rank r (default: equal shares); returns what arrived, in rank order. Splits may
  // differ between ranks.
  torch::Tensor all_to_all(const torch::Tensor& tensor, std::vector<std::int64_t> splits = {});
  void barrier();

  // The root's parameters and buffers.
  void broadcast(torch::nn::Module& module, int root = 0);
  // Rank 0's state and options; Adam, AdamW, SGD, RMSprop, Adagrad.
  void broadcast(torch::optim::Optimizer& optimizer);
  void broadcast(std::string& text, int root = 0);

  Communicator& communicator() { return *communicator_; }
  // From now on over this one; null until another comes.
  void use(std::unique_ptr<TracedCommunicator> communicator);
  // Of the same, for Join.
  JoinCommunicator& joinable() { return *communicator_; }
  bool joining() const { return communicator_ != nullptr && communicator_->joining(); }

 private:
  std::unique_ptr<JoinCommunicator> communicator_;
  FusedAllreduce fused_;  // has memory of the communicator
};

}  // namespace farandole
