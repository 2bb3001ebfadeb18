// Overhead of a feature on training steps, estimated from blocks of steps that alternately run with and
// without it. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

class Session;

// For each round: the logarithm of the ratio of the times of a block with the feature and the
// neighbouring block without it.
struct Added {
  std::vector<double> time;  // Wall time on rank 0.
  // Processor time of the training threads of all ranks; other processes do not affect it.
  std::vector<double> processor_time;
};

struct ShareEstimate {
  double value = 0;
  std::optional<Range> ci95;  // No value if there are too few rounds.
};

// 0.01 means an overhead of 1 %. The estimate is the mean of the middle half, so that disturbed
// rounds do not count.
ShareEstimate added_share(const std::vector<double>& by_round);
// Returns the ratio of the two overheads, from the same means.
ShareEstimate ratio_of_added(const std::vector<double>& first, const std::vector<double>& second);

struct TrainingOverhead {
  std::string model;
  int ranks = 0;
  double step_ms = 0;  // Median without the timeline and the profiler.
  int steps_a_block = 0;
  double events_a_step = 0;  // Events that the timeline records on rank 0.
  Added timeline;
  Added profiler;  // PyTorch's profiler; measured in some of the rounds.
};

// Trains with the timeline, with PyTorch's profiler, and with neither; the three alternate. `seconds` is the
// approximate duration of the steps of the model, which is one of BenchmarkTrainee. The session must record
// from step 1 on; steps without the timeline run as step 0.
// Collective: every rank of the group must call this in the same order.
TrainingOverhead benchmark_overhead(Session& session, const std::string& model, double seconds);

}  // namespace farandole
