// Chooses the window that a run is judged by: whole steps that all ranks have, without the warm-up. Plain
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/interval.h"
#include "farandole/analyzer/model/run_model.h"

namespace farandole {

struct Window {
  Interval time;                // from the first kept step's first start to the last kept step's last end
  std::vector<Interval> steps;  // kept ones by start: first start to last end over the ranks
  std::vector<std::int64_t> step_numbers;  // of the kept steps
  std::int64_t warmup_steps = 0;
  std::vector<double> step_ms;     // of each kept step, its longest duration on any rank
  std::vector<double> periods_ms;  // from each kept step's start to the next one's; they add up to the window
  bool of_gpu = false;             // the GPUs' work, as other profilers recorded it, sets the window
  std::string no_steps;            // why there are none: then `time` is all that the trace covers

  // Kept steps that took more than 1.5 times the median and eight times the median deviation beyond it; by
  // index.
  std::vector<std::size_t> outliers() const;

  std::int64_t length() const { return time.end - time.start; }
};

// How many of `steps` steps count as warm-up: a tenth, at least 1 and at most 5, but never all.
std::int64_t warmup_of(std::int64_t steps);

// Appends to `warnings` which ranks lack steps that others have.
Window choose_window(const RunModel& run, std::vector<std::string>& warnings);

}  // namespace farandole
