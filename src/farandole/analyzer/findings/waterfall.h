// Splits 100 % of the ranks' time into useful compute and losses with their causes. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/findings/wait_causes.h"
#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

struct Loss {
  Share share = Share::idle;
  std::string name;     // For example "waiting: rank 3's backward".
  double fraction = 0;  // Fraction of the ranks' time.
  double hours = 0;     // Sum over all ranks of the run, in the window.
};

// Returns the losses, the largest first. Waiting is split in proportion to the time that its causes cost. The
// sum of all losses and the parallel efficiency is 1.
std::vector<Loss> find_losses(const RunMetrics& metrics, const std::vector<WaitCause>& causes);

// Returns "GPU-hours" if GPUs were used, otherwise "rank-hours".
std::string_view hours_unit(const RunMetrics& metrics);
// Returns, for example, "3.1 rank-hours"; short times are in minutes or seconds.
std::string rank_time_text(double hours, const RunMetrics& metrics);

}  // namespace farandole
