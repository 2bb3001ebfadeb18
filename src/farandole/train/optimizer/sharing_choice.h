// Decides whether the ranks of a node share parameters and the optimizer's state.
// Thread safety: call from the training thread only.
#pragma once

#include <string>
#include <torch/optim/optimizer.h>

#include "farandole/comm/communicator.h"
#include "farandole/train/distributed_optimizer_options.h"
#include "farandole/train/optimizer/trained_parameters.h"

namespace farandole {

// What decides beside the options; the same on all ranks.
struct SharingFacts {
  bool on_gpu = false;
  bool can_gather = false;         // On GPUs: BucketDevice::can_gather().
  bool shares_parameters = false;  // With another DistributedOptimizer of this process.
};

// Says why they do not; empty if they do. The same on all ranks.
// Throws: UserError with this reason if the options require it.
std::string why_not_shared(const DistributedOptimizerOptions& options, torch::optim::Optimizer& optimizer,
                           const TrainedParameters& dense, Communicator& ranks, const SharingFacts& facts);

}  // namespace farandole
