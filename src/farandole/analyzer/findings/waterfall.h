// From 100 % of the ranks' time down to what is useful: what each loss takes, and why. Plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/findings/wait_causes.h"
#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

struct Loss {
  Share share = Share::idle;
  std::string name;     // "waiting: rank 3's backward"
  double fraction = 0;  // of the ranks' time
  double hours = 0;     // of all the run's ranks together, over the window
};

// The largest first. Waiting is split by its causes, in proportion to the time that they cost. With the
// parallel efficiency they add up to 1.
std::vector<Loss> find_losses(const RunMetrics& metrics, const std::vector<WaitCause>& causes);

// What an hour of a rank is: "GPU-hours" where GPUs were used, else "rank-hours".
std::string_view hours_unit(const RunMetrics& metrics);
// "3.1 rank-hours"; short times in minutes or seconds.
std::string rank_time_text(double hours, const RunMetrics& metrics);

}  // namespace farandole
