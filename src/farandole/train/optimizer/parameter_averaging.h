// Averages parameters over ranks that train separately (local SGD).
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <vector>

#include "farandole/fusion/reduction_queue.h"
#include "farandole/train/collectives_internals.h"
#include "farandole/train/optimizer/joining.h"
#include "farandole/train/update/flat_buckets.h"

namespace farandole {

class ParameterAveraging {
 public:
  // `every`: steps between averages; 0: only on request.
  ParameterAveraging(std::unique_ptr<TracedCommunicator> ranks, std::int64_t every)
      : ranks_(std::make_unique<TensorCollectives::Internals>(std::move(ranks))), every_(every) {}

  Communicator& ranks() { return communicator_of(ranks_); }
  // Counts a step of this rank. Returns whether an average is due.
  bool step_ended() { return ++steps_alone_ == every_; }

  // Averages in place, with one collective per tensor. Each tensor must be contiguous.
  void average(std::vector<torch::Tensor>& parameters);
  // Inside a Join: averages over the ranks that have stepped since the last average. `active`: this rank
  // still has batches. Returns whether any rank still has batches.
  // Collective: every rank of the group must call this in the same order.
  bool average_of_stepped(FlatBuckets& buckets, Joining& joining, bool active);
  // Averages the optimizer's state. Numbers become the largest value of all ranks; tensors that a rank does
  // not have count as zeros. The supported optimizers are those of torch_optimizers.h.
  void average_state(torch::optim::Optimizer& optimizer);

  std::size_t sent_bytes() const { return sent_bytes_; }

 private:
  TensorCollectives ranks_;
  const std::int64_t every_;
  std::int64_t steps_alone_ = 0;  // Since the last average.
  std::size_t sent_bytes_ = 0;
};

// Tells ranks that train separately whether any of them must stop. A round runs during a step and is complete
// at the end of this step at the latest, so that no rank waits for a rank that is less than a step behind.
class StopVote {
 public:
  // `timeline` must outlive this object.
  StopVote(std::unique_ptr<TracedCommunicator> ranks, Timeline& timeline);

  // Ends the round, and starts the next one with this rank's vote.
  // Collective: every rank of the group must call this in the same order.
  void next(bool stop);
  bool stopping() const { return stopping_; }  // The result of the last round that ended.

 private:
  const std::unique_ptr<TracedCommunicator> ranks_;
  int vote_ = 0;
  bool stopping_ = false;
  std::unique_ptr<ReductionQueue> round_;
};

}  // namespace farandole
