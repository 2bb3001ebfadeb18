// One plain sentence about a run, and at most five findings with evidence. Plain functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/findings/stragglers.h"
#include "farandole/analyzer/findings/wait_causes.h"
#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

// What a replay can try out of a finding's change.
enum class Remedy : std::uint8_t { unknown, no_straggler, bucket_size, no_checkpoint };

struct ReplayedGain {
  std::string scenario;     // as --what-if takes it
  double gain_percent = 0;  // by which the run is shorter
};

struct Finding {
  std::string title;
  std::string evidence;
  double gain_percent = 0;  // of the window, if the loss went away whole
  std::string change;
  Remedy remedy = Remedy::unknown;
  std::optional<ReplayedGain> replayed{};  // what_if/replayed_gains.h
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
