// One plain sentence about a run, and at most five findings with evidence. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "farandole/analyzer/metrics.h"
#include "farandole/analyzer/stragglers.h"
#include "farandole/analyzer/wait_causes.h"

namespace farandole {

struct Finding {
  std::string title;
  std::string evidence;
  double gain_percent = 0;  // of the window, if the loss went away whole
  std::string change;
};

std::string verdict_of(const RunMetrics& metrics, const std::vector<Straggler>& stragglers);

// The largest gain first; gains below 1 % of the window are none.
std::vector<Finding> findings_of(const RunMetrics& metrics, const std::vector<Straggler>& stragglers,
                                 const std::vector<WaitCause>& causes);

// "rank 1 (node7)"
std::string name_of_rank(const RankMetrics& rank);
// "128 ranks (64 of them measured)", "1 rank".
std::string ranks_text(const RunMetrics& metrics);
// "never", "once", "1,234 times".
std::string times_text(std::uint64_t count);
// 1234.5 as "1,234.5".
std::string with_thousands(double value, int decimals = 0);

}  // namespace farandole
