// One sentence about a run, and at most five findings with evidence. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/findings/stragglers.h"
#include "farandole/analyzer/findings/wait_causes.h"
#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

// The part of a finding's advice that a replay can simulate.
enum class Remedy : std::uint8_t { unknown, no_straggler, bucket_size, no_checkpoint };

struct ReplayedGain {
  std::string scenario;     // In the syntax of --what-if.
  double gain_percent = 0;  // By how much the run becomes shorter.
};

struct Finding {
  std::string title;
  std::string evidence;
  double gain_percent = 0;  // By how much the run becomes shorter at most, if the whole loss is removed.
  std::string change;
  Remedy remedy = Remedy::unknown;
  std::optional<ReplayedGain> replayed{};  // See analyzer/what_if/what_if.h.
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
