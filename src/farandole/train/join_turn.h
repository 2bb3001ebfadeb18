// What the ranks of an optimizer tell each other at each step while some have run out of batches. Collective;
// used by one thread at a time.
#pragma once

#include <torch/torch.h>

#include "farandole/comm/communicator.h"

namespace farandole {

struct JoinCount {
  int active = 0;        // ranks that still have batches
  int contributing = 0;  // ranks that had a share in what was just reduced
};
JoinCount count_joined(Communicator& communicator, bool active, bool contributes);

// Whether the active ranks step, and not throw their gradients away; ranks without batches take over the
// learning rates of `optimizer` from them. Throws UserError on all ranks where the active ones differ in it.
bool agree_to_step(Communicator& communicator, torch::optim::Optimizer& optimizer, bool active, bool steps);

}  // namespace farandole
