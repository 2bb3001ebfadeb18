// Saves the whole state of a training run as a snapshot and restores it.
// Thread safety: call from the training thread only.
#pragma once

#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <vector>

#include "farandole/checkpoint/snapshot.h"
#include "farandole/train/session.h"

namespace farandole {

// The progress of the run; saved with the tensors.
struct Position {
  std::int64_t step = 0;     // optimizer steps done
  std::int64_t epoch = 0;    // epochs completed
  std::int64_t batches = 0;  // Batches of the current epoch that are already done.
};

// The random generators of all ranks are gathered. Only on rank 0 the snapshot is complete. It is a copy,
// so training may continue.
// Collective: every rank of the group must call this in the same order.
Snapshot capture(Session& session, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                 const Position& position);

// Rank 0 passes the snapshot, the others pass nullptr; all ranks get its state. If the snapshot has no
// generator for a rank because the number of ranks has grown, that rank keeps its own.
// Throws: UserError on all ranks if the model differs.
// Collective: every rank of the group must call this in the same order.
Position restore(Session& session, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                 const Snapshot* snapshot);

}  // namespace farandole
