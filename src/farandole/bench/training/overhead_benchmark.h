// Training steps with the timeline, with PyTorch's profiler, and with neither; the three alternate.
// Collective: every rank of the group must call this in the same order.
#pragma once

#include <string>

#include "farandole/bench/overhead.h"
#include "farandole/train/session.h"

namespace farandole {

struct OverheadBenchmarkOptions {
  double seconds = 30;  // Approximate duration of the steps of a model.
};

// The session must record from step 1 on; steps without the timeline run as step 0. The models
// are those of BenchmarkTrainee.
TrainingOverhead benchmark_overhead(Session& session, const std::string& model,
                                    const OverheadBenchmarkOptions& options);

}  // namespace farandole
