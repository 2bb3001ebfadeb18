// Merges the ranks' records into one Chrome trace on one clock.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/merge/clock_refinement.h"
#include "farandole/timeline/merge/record_source.h"

namespace farandole {

struct RankTimeline {
  std::unique_ptr<RecordSource> records;
  ClockModel clock;  // maps to rank 0's clock
  // False: the trace gives the residual as unknown (null), unless collectives determine it.
  bool clock_known = true;
};

// Determines the clock of each rank from its own samples and those of ranks that share its clock. If there
// are none, uses the date of its host. `others` are ranks that are not shown: only one rank of a host
// measures its clock, and this may be one of them.
std::vector<RankTimeline> with_clocks(std::vector<std::unique_ptr<RecordSource>> ranks,
                                      std::span<const RankInfo> others = {});

// Corrects the clocks by the ranks' collectives. Returns the number
// of remaining violations (clock_refinement.h).
std::uint64_t refine_clocks_of(std::vector<RankTimeline>& ranks);
// The start of the earliest record on rank 0's clock; 0 if there is no record.
std::int64_t earliest_of(const std::vector<RankTimeline>& ranks);

struct MergeOptions {
  // Limit of the collectives that are linked by flows. Each takes 24 bytes of memory and up to two events.
  // Above the limit, only every second, fourth, … sequence number is linked.
  std::size_t most_linked = std::size_t{1} << 19;
  unsigned threads = 0;  // number of compressing threads; 0 means one per processor, up to 8
};

struct MergeResult {
  std::uint64_t events = 0;       // in the trace, including metadata and flows
  std::uint64_t flows = 0;        // pairs
  std::uint64_t link_stride = 1;  // 1 if all collectives are linked, n if every nth sequence number is
  std::uint64_t clipped = 0;      // spans shortened because they ended after their parent
  std::uint64_t overwritten = 0;  // records that the bounded recorders had already overwritten
  std::uint64_t dropped = 0;
  std::uint64_t damaged = 0;
  // Pairs of ranks that violate causality: one left a collective before the other entered it.
  std::uint64_t left_early = 0;
};

// Writes the trace of `ranks` to `output`, in rank order. `ranks` may be in any order and incomplete. The
// earliest event has ts 0. Clocks are refined by causality (clock_refinement.h). Sources are read one after
// the other, so memory is bounded by one block, the table of linked collectives, the infos of the ranks with
// their samples of collectives (Meetings), and the writer. After a failure, `output` is unchanged.
// Throws: UserError if a rank is given twice or no rank is given.
// Throws: Error if writing fails, and the errors of the sources.
MergeResult merge_timelines(std::vector<RankTimeline> ranks, const std::filesystem::path& output,
                            const MergeOptions& options = {});

}  // namespace farandole
