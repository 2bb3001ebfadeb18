// Corrects the ranks' clocks by causality: no rank can leave a collective before every rank has entered it.
// Thread safety: any thread may call this at any time. Each call needs its own data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/merge/meetings.h"

namespace farandole {

struct RankClock {
  ClockModel model;
  bool known = true;  // false means that the model is a guess, which collectives may correct
  std::span<const Meeting> meetings;
};

// The reference is the first known clock, or the first clock if none is known. It is not changed. An unknown
// clock gets the constant shift that collectives with known clocks determine; it is then known, with a
// residual. Afterwards known clocks are shifted, as lines in time and within their residuals, until all
// meetings respect causality. Violations that residuals cannot explain, for example because a collective
// failed, are not corrected.
//
// Returns the number of pairs of visits in which one rank still left before the other one entered.
std::uint64_t refine_clocks(std::span<RankClock> ranks);

}  // namespace farandole
