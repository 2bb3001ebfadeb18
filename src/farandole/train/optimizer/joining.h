// What the ranks of one optimizer tell each other at each step while some have run out of batches
// (train/join.h). Used by one thread at a time.
#pragma once

#include <torch/torch.h>

#include "farandole/comm/communicator.h"

namespace farandole {

class Joining {
 public:
  // `ranks` and `optimizer` outlive this.
  Joining(Communicator& ranks, torch::optim::Optimizer& optimizer) : ranks_(ranks), optimizer_(optimizer) {}

  void begin(bool divide_by_all);
  void end() { under_way_ = false; }
  bool under_way() const { return under_way_; }

  struct Count {
    int active = 0;        // ranks that still have batches
    int contributing = 0;  // ranks that had a share in what was just reduced
  };
  // Collective.
  Count count(bool active, bool contributes);
  // The factor that makes an average over all ranks one over the ranks that had a share.
  double correction(const Count& count) const;

  // Whether the active ranks step instead of throwing their gradients away; ranks without batches take over
  // the learning rates of the optimizer from them. Collective. Throws UserError on all ranks where the active
  // ones differ in it.
  bool agree_to_step(bool active, bool steps);

 private:
  Communicator& ranks_;
  torch::optim::Optimizer& optimizer_;
  bool under_way_ = false, divide_by_all_ = false;
};

}  // namespace farandole
