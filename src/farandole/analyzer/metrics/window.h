// Chooses the window that the metrics cover: whole steps that all ranks have,
// without warm-up. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/analyzer/model/interval.h"
#include "farandole/analyzer/model/run_model.h"

namespace farandole {

struct Window {
  Interval time;  // From the first start of the first kept step to the last end of the last kept step.
  std::vector<Interval> steps;  // Kept steps ordered by start: first start to last end over the ranks.
  std::vector<std::int64_t> step_numbers;  // Numbers of the kept steps.
  std::int64_t warmup_steps = 0;
  std::vector<double> step_ms;  // For each kept step, its longest duration on any rank.
  // From the start of each kept step to that of the next; the sum is the window.
  std::vector<double> periods_ms;
  bool of_gpu = false;   // The window is the extent of the GPU work that another profiler recorded.
  bool of_part = false;  // It has only those steps of which the work of GPUs was recorded.
  std::string no_steps;  // Why there are no steps; then `time` is the extent of the trace.

  // Returns the indices of kept steps that took longer than 1.5 times the median and longer than the median
  // plus eight median deviations.
  std::vector<std::size_t> outliers() const;

  std::int64_t length() const { return time.end - time.start; }
};

// Returns how many of `steps` steps are warm-up: a tenth, but at least 1, at most 5, and never all.
std::int64_t warmup_of(std::int64_t steps);

// Adds to `warnings` which ranks lack steps that others have, and which steps lack the work of GPUs.
Window choose_window(const RunModel& run, std::vector<std::string>& warnings);

}  // namespace farandole
