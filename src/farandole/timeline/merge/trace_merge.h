// Merges the ranks' records into one Chrome trace on one clock. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/merge/clock_refinement.h"
#include "farandole/timeline/merge/record_source.h"

namespace farandole {

struct RankTimeline {
  std::unique_ptr<RecordSource> records;
  ClockModel clock;         // to rank 0's
  bool clock_known = true;  // false: the residual is given as unknown (null), unless collectives tell it
};

// The clock of each rank from its own samples and those of others that share its clock, or where there are
// none from its host's date.
std::vector<RankTimeline> with_clocks(std::vector<std::unique_ptr<RecordSource>> ranks);

// Corrects the clocks by the ranks' collectives, and returns what that leaves (clock_refinement.h).
std::uint64_t refine_clocks_of(std::vector<RankTimeline>& ranks);
// The earliest record's start, on rank 0's clock; 0 where there is none.
std::int64_t earliest_of(const std::vector<RankTimeline>& ranks);

struct MergeOptions {
  // Collectives that are linked by flows; 24 bytes of memory and up to two events each. Above it, only every
  // second, fourth, … sequence number is linked.
  std::size_t most_linked = std::size_t{1} << 19;
  unsigned threads = 0;  // that compress; 0: as many as the machine has, at most 8
};

struct MergeResult {
  std::uint64_t events = 0;       // of the trace, metadata and flows included
  std::uint64_t flows = 0;        // pairs
  std::uint64_t link_stride = 1;  // every how many sequence numbers are linked
  std::uint64_t clipped = 0;      // spans shortened because they overlapped their parent's end
  std::uint64_t overwritten = 0;  // records that the bounded recorders no longer had
  std::uint64_t dropped = 0;
  std::uint64_t damaged = 0;
  std::uint64_t left_early = 0;  // times that a rank left a collective before another came, by their clocks
};

// Writes the trace of `ranks` (any order, some may be missing) to `output`, in rank order; the earliest event
// of all is at ts 0. Clocks are refined by causality (clock_refinement.h). Reads one source after the other:
// memory is that of one block, of the table of linked collectives and of the writer. Throws UserError for a
// rank given twice or none at all, what the sources throw, and Error where writing fails; `output` is then as
// it was.
MergeResult merge_timelines(std::vector<RankTimeline> ranks, const std::filesystem::path& output,
                            const MergeOptions& options = {});

}  // namespace farandole
