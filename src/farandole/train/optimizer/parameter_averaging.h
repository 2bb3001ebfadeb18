// Averages over ranks of what each has trained on its own: local SGD. Used by the training thread.
#pragma once

#include <cstdint>
#include <memory>
#include <torch/torch.h>
#include <vector>

#include "farandole/train/internals.h"
#include "farandole/train/optimizer/bucket_optimizer.h"
#include "farandole/train/optimizer/joining.h"

namespace farandole {

class ParameterAveraging {
 public:
  // `every`: steps from one average to the next; 0: only when asked.
  ParameterAveraging(std::unique_ptr<TracedCommunicator> ranks, std::int64_t every)
      : ranks_(std::make_unique<TensorCollectives::Internals>(std::move(ranks))), every_(every) {}

  Communicator& ranks() { return communicator_of(ranks_); }
  // This rank has made a step. Returns whether an average is due.
  bool step_ended() { return ++steps_alone_ == every_; }

  // In place, one collective a tensor; each in one piece of memory.
  void average(std::vector<torch::Tensor>& parameters);
  // Inside a Join: the average of the ranks that have stepped since the last one. `active`: this rank still
  // has batches. Returns whether any rank has. Collective.
  bool average_of_stepped(BucketOptimizer& buckets, Joining& joining, bool active);
  // Of the optimizer's state: numbers take the largest of all ranks; what a rank does not have counts as
  // zeros there. Optimizers as in optimizer_state.h.
  void average_state(torch::optim::Optimizer& optimizer);

  std::size_t sent_bytes() const { return sent_bytes_; }

 private:
  TensorCollectives ranks_;
  const std::int64_t every_;
  std::int64_t steps_alone_ = 0;  // since the last average
  std::size_t sent_bytes_ = 0;
};

}  // namespace farandole
