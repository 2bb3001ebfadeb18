// What a thing adds to training steps, from blocks of steps with it and without it that took turns. Plain
// values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

// By round: the logarithm of what a block of steps with the thing took over what the block without it took
// beside which it ran.
struct Added {
  std::vector<double> time;            // of rank 0
  std::vector<double> processor_time;  // of the training threads of all ranks: without what others disturb
};

struct ShareEstimate {
  double value = 0;
  std::optional<Range> ci95;  // none of too few rounds
};

// 0.01: the thing adds 1 %. Rounds that were disturbed, in either direction, do not count: the mean of the
// middle half.
ShareEstimate added_share(const std::vector<double>& by_round);
// What the first adds over what the second adds, by the same means.
ShareEstimate ratio_of_added(const std::vector<double>& first, const std::vector<double>& second);

struct TrainingOverhead {
  std::string model;
  int ranks = 0;
  double step_ms = 0;  // median, without either
  int steps_a_block = 0;
  double events_a_step = 0;  // that the timeline records on rank 0
  Added timeline;
  Added profiler;  // PyTorch's, in some of the rounds
};

}  // namespace farandole
