// Which ranks of a large run go into one trace. Pure functions of plain values.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "farandole/timeline/merge/trace_merge.h"

namespace farandole {

struct RankChoice {
  std::vector<std::size_t> chosen;  // indices into what was given, ascending
  int slowest = -1;                 // the rank that collectives waited for longest; -1: unknown
};

// All of at most `limit` (0: no limit); else the first, the last, the slowest and others at even distances.
RankChoice choose_ranks(std::span<const RankTimeline> ranks, std::size_t limit);

// One line for people about what was left out; "" where nothing was.
std::string left_out_text(std::span<const RankTimeline> ranks, const RankChoice& choice);

}  // namespace farandole
