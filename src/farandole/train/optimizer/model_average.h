// Averages over ranks of what each has trained on its own: local SGD. Used by the training thread.
#pragma once

#include <memory>
#include <torch/torch.h>
#include <vector>

#include "farandole/train/tensor_collectives.h"

namespace farandole {

class ModelAverage {
 public:
  explicit ModelAverage(std::unique_ptr<TracedCommunicator> communicator) : ranks_(std::move(communicator)) {}

  // In place, one collective a tensor; each in one piece of memory.
  void average(std::vector<torch::Tensor>& parameters);
  // Of the optimizer's state: numbers take the largest of all ranks; what a rank does not have counts as
  // zeros there. Optimizers as in optimizer_state.h.
  void average(torch::optim::Optimizer& optimizer);

  TensorCollectives& ranks() { return ranks_; }

 private:
  TensorCollectives ranks_;
};

}  // namespace farandole
