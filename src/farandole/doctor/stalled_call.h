// Which collective a run stood in at its end: who waited there, and who never came. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/doctor/run_evidence.h"

namespace farandole {

struct StalledCall {
  std::string text;           // "allreduce #17 'bucket 2'"
  std::vector<int> waiting;   // ascending
  std::vector<int> missing;   // had not begun it, by their recorders; those without one are in neither list
  std::int64_t since_ns = 0;  // the first of the waiting came, on its host's clock
};

// Who waits this long in a collective hangs.
inline constexpr std::int64_t long_wait_ns = 10'000'000'000;

// The collective that most ranks were in when their recorders end, of those that lack somebody; of equal ones
// the one that was begun first. Nothing where no recorder tells of one.
std::optional<StalledCall> find_stalled_call(const std::vector<RankEvidence>& ranks);

std::string describe(const Activity& activity);  // "backward", "data 'load'", "allreduce #17 'bucket 2'"

}  // namespace farandole
