// Finds ranks whose parameters have silently become different.
// Thread safety: call from the training thread only.
#pragma once

#include <torch/nn/module.h>

#include "farandole/train/session.h"

namespace farandole {

// Compares a hash of every parameter on all ranks. If all are equal, this costs one pass over the
// parameters and one message of 16 bytes. Buffers are not compared, because the running statistics of
// batch normalization differ.
// Throws: Error on all ranks, with the first parameter that differs and the ranks that have each value.
// Collective: every rank of the job must call this in the same order.
void check_replicas(Session& session, const torch::nn::Module& model);

}  // namespace farandole
