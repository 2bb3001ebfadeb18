// Weak and strong scaling efficiency from runs of different sizes. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "farandole/analyzer/statistics.h"

namespace farandole {

// What scaling needs of a run; repeats of one size are separate entries.
struct SizedRun {
  std::string path;
  int ranks = 0;
  Figure global_batch;             // samples per step of all ranks
  std::vector<double> periods_ms;  // step by step; they add up to its window
};

struct ScalingPoint {
  int ranks = 0;
  double step_ms = 0;     // mean period
  double efficiency = 0;  // against the smallest size; 1 there
  Range ci95;             // bootstrap over steps
};

struct Scaling {
  std::string unknown;  // why there is no scaling; then the rest is empty
  std::string mode;     // "weak": same batch a rank; "strong": same global batch
  int base_ranks = 0;
  std::vector<ScalingPoint> points;  // by ranks
};

Scaling measure_scaling(const std::vector<SizedRun>& runs);

}  // namespace farandole
