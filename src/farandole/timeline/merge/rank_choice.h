// Chooses the ranks of a run that are shown in one trace.
// Thread safety: any thread may call this at any time. Each call needs its own data.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

// A set of ranks in the form that people write: "0,3-5". A plain value.
// Thread safety: const methods may run concurrently; others need external synchronization.
class RankSet {
 public:
  RankSet() = default;                          // all ranks
  static RankSet parse(std::string_view text);  // throws UserError if the text has another form
  bool contains(int rank) const;
  bool all() const { return ranges_.empty(); }

 private:
  std::vector<std::pair<int, int>> ranges_;  // first and last rank of each range
};

}  // namespace farandole
