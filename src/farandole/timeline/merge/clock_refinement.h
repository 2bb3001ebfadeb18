// Corrects the ranks' clocks by causality: no rank leaves a collective before the last has entered it. Pure
// functions of plain values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/merge/meetings.h"

namespace farandole {

struct RankClock {
  ClockModel model;
  bool known = true;  // false: the model is a guess, which collectives may put right
  std::span<const Meeting> meetings;
};

// The first known clock, or else the first, is the reference and stays. An unknown clock gets the constant
// shift that collectives with known ones leave, and becomes known, with a residual. Then known clocks are
// shifted, as lines in time and within their residuals, until all meetings are respected. What a residual
// cannot explain is no clock's fault (a collective that failed, for one) and stays.
//
// Returns in how many pairs of visits one rank still left before the other came.
std::uint64_t refine_clocks(std::span<RankClock> ranks);

}  // namespace farandole
