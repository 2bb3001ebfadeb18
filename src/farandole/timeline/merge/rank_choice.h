// Chooses the ranks of a large run that are shown in one trace.
// Thread safety: any thread may call this at any time; each call needs its own data.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "farandole/timeline/merge/trace_merge.h"

namespace farandole {

struct RankChoice {
  std::vector<std::size_t> chosen;  // indices into the given ranks, ascending
  int slowest = -1;                 // the rank that collectives waited for longest; -1 if unknown
};

// Chooses all ranks if there are up to `limit` (0 means no limit). Above this limit, chooses only the first,
// last and slowest ranks and a sample of the others at equal distances.
RankChoice choose_ranks(std::span<const RankTimeline> ranks, std::size_t limit);

// One line that tells people which ranks were left out; "" if none was.
std::string left_out_text(std::span<const RankTimeline> ranks, const RankChoice& choice);

}  // namespace farandole
