// Training steps with the timeline, with PyTorch's profiler and with neither, in turns. Collective; used by
// the main thread.
#pragma once

#include <string>

#include "farandole/bench/overhead.h"
#include "farandole/train/session.h"

namespace farandole {

struct OverheadBenchmarkOptions {
  double seconds = 30;  // of a model's steps, about
};

// The session must record, from step 1 on: steps without the timeline are taken as step 0. Models as
// BenchmarkTrainee has them.
TrainingOverhead benchmark_overhead(Session& session, const std::string& model,
                                    const OverheadBenchmarkOptions& options);

}  // namespace farandole
