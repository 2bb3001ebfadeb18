// Training steps with communication beside the same steps without. Collective; used by the main thread.
#pragma once

#include <string>
#include <vector>

#include "farandole/bench/sample.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/session.h"

namespace farandole {

struct StepBenchmarkOptions {
  int steps = 20;  // measured of each kind, in turns of a few
  int warmup = 5;  // steps before
  DistributedOptimizerOptions optimizer{};
};

struct StepResult {
  std::string model;
  int ranks = 0;
  Sample step;                        // of rank 0
  Sample step_without_communication;  // the same processes at the same time, each for itself
  std::size_t gradient_bytes = 0;     // of a rank
  std::size_t packed_bytes = 0;       // a step: copied into buckets and out of them
};

// "mlp": 4 × 2048, batch 32, SGD with momentum; "gpt": 6 layers, 384 wide, 128 bytes, batch 4, AdamW;
// "mnist": batch 64, SGD with momentum. Random data, the same at each step. Throws UserError for another
// name.
StepResult benchmark_step(Session& session, const std::string& model, const StepBenchmarkOptions& options);

}  // namespace farandole
