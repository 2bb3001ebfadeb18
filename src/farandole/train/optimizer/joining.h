// Communication of the ranks of one optimizer in each step while some ranks have
// no more batches (train/join.h).
// Thread safety: none; use from one thread at a time.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "farandole/comm/communicator.h"

namespace farandole {

class Joining {
 public:
  // `ranks` and `optimizer` must outlive this object.
  Joining(Communicator& ranks, torch::optim::Optimizer& optimizer) : ranks_(ranks), optimizer_(optimizer) {}

  void begin(bool divide_by_all);
  void end() { under_way_ = false; }
  bool under_way() const { return under_way_; }

  struct Count {
    int active = 0;        // Ranks that still have batches.
    int contributing = 0;  // Ranks that contributed to the last reduction.
  };
  // Collective: every rank of the group must call this in the same order.
  Count count(bool active, bool contributes);
  // Returns the factor that converts an average over all ranks into an average over the contributing ranks.
  double correction(const Count& count) const;

  // Returns whether the active ranks step or discard their gradients. Ranks without batches take the learning
  // rates of the optimizer from the active ranks.
  // Throws: UserError on all ranks if the active ranks differ.
  // Collective: every rank of the group must call this in the same order.
  bool agree_to_step(bool active, bool steps);

 private:
  Communicator& ranks_;
  torch::optim::Optimizer& optimizer_;
  bool under_way_ = false, divide_by_all_ = false;
};

}  // namespace farandole
