// Finds why ranks waited in collectives (what delayed the last rank), and splits 100 % of the ranks' time
// into useful compute and losses with their causes. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

// The "phase" of a rank that is late because it waits for a core.
inline constexpr std::string_view core_wait = "core wait";

struct WaitCause {
  std::string phase;  // Phase in which the last rank took longer than the others; "" if none explains it.
  std::size_t rank_index;  // The last rank.
  double seconds = 0;      // Waiting time of all ranks together.
};

// The waiting time of each collective is assigned to the last rank. It is distributed over the phases
// in which that rank took longer in this step than the median of the others. Time that the phases do
// not explain, or that is within the clock error, has no phase. If the rank lacks a core, its wait
// for one explains as much of this as it lasts. The largest cause comes first; the sum is all waiting
// time in collectives.
std::vector<WaitCause> find_wait_causes(const RunMetrics& metrics);

// The part of a cause in the ranks' time.
struct CausedLoss {
  WaitCause cause;
  double waiting = 0;
  // What the last rank takes longer than the others in data, checkpoint, evaluation or other work. In other
  // phases, this is compute.
  double own = 0;
};

// Returns the causes in their order. The sum of `waiting` is the share of waiting.
std::vector<CausedLoss> find_caused_losses(const RunMetrics& metrics, const std::vector<WaitCause>& causes);

struct Loss {
  Share share = Share::idle;  // Under which the table has it; see group_losses().
  std::string name;           // For example "waiting: rank 3's backward".
  double fraction = 0;        // Fraction of the ranks' time.
  double hours = 0;           // Sum over all ranks of the run, in the window.
};

// Returns the losses, the largest first. Waiting is split in proportion to the time that its causes cost.
// A cause includes what the late rank itself loses by it. The sum of all losses and the parallel
// efficiency is 1.
std::vector<Loss> find_losses(const RunMetrics& metrics, const std::vector<WaitCause>& causes);

// The larger of host wait and kernel wait: why GPUs are idle while their processes work.
IdleCause idle_cause_of_work(const RunMetrics& metrics);

// Returns "rank 3's backward" if the name is "waiting: rank 3's backward".
std::string cause_in(const Loss& loss);

// Losses that have one remedy, the largest first.
struct LossGroup {
  Share share = Share::idle;
  std::string name;
  double fraction = 0, hours = 0;
  std::vector<Loss> parts;
};
// Returns the groups, the largest first.
std::vector<LossGroup> group_losses(const std::vector<Loss>& losses);

// Returns "GPU-hours" if GPUs were used, otherwise "rank-hours".
std::string_view hours_unit(const RunMetrics& metrics);
// Returns, for example, "3.1 rank-hours"; short times are in minutes or seconds.
std::string rank_time_text(double hours, const RunMetrics& metrics);

}  // namespace farandole
