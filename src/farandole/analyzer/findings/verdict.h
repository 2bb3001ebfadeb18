// One sentence about a run, and at most five findings with evidence. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/analyzer/findings/stragglers.h"
#include "farandole/analyzer/findings/wait_causes.h"
#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

struct Finding {
  std::string title;
  std::string evidence;
  double gain_percent = 0;  // Upper bound: by how much the run is shorter if the whole loss is removed.
  std::string change;
};

// The largest loss is that of group_losses().
std::string verdict_of(const RunMetrics& metrics, const std::vector<Straggler>& stragglers,
                       const std::vector<WaitCause>& causes);

// Returns one finding per cause: those of the largest group of losses first, and in a group the largest loss
// first. Losses below 1 % of the ranks' time are left out.
std::vector<Finding> findings_of(const RunMetrics& metrics, const std::vector<Straggler>& stragglers,
                                 const std::vector<WaitCause>& causes);

// Returns, for example, "rank 1 (node7)".
std::string name_of_rank(const RankMetrics& rank);
// Returns, for example, "128 ranks (64 of them measured)" or "1 rank".
std::string ranks_text(const RunMetrics& metrics);
// Returns "never", "once" or, for example, "1,234 times".
std::string times_text(std::uint64_t count);
// Returns, for example, "1,234.5" for 1234.5.
std::string with_thousands(double value, int decimals = 0);

}  // namespace farandole
