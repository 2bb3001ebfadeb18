// A training run's whole state as a snapshot and back. Used by the training thread.
#pragma once

#include <optional>
#include <string>
#include <torch/torch.h>
#include <vector>

#include "farandole/checkpoint/snapshot.h"
#include "farandole/train/session.h"

namespace farandole {

// How far the run has come; saved with the tensors.
struct Position {
  std::int64_t step = 0;     // optimizer steps done
  std::int64_t epoch = 0;    // epochs completed
  std::int64_t batches = 0;  // batches of the running epoch already taken
};

// Collective: the generators of all ranks are gathered. The snapshot is complete on rank 0 only, and a copy:
// training may go on.
Snapshot capture(Session& session, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                 const Position& position);

// Collective: rank 0 has the snapshot (others pass nullptr), all ranks get its state. Where the snapshot has
// no generator for a rank, because the world has grown, that rank keeps its own. Throws UserError on all
// ranks where the model differs.
Position restore(Session& session, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                 const Snapshot* snapshot);

}  // namespace farandole
