// Matches collectives across ranks and separates waiting from transfer. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/model/interval.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

// One collective on all ranks of its communicator.
struct CollectiveMatch {
  std::uint32_t name = 0;
  std::uint32_t operation = 0;
  std::uint32_t part_count = 0;
  // Ranks of its communicator; larger than part_count if ranks are missing in the run; 0: unknown.
  std::uint32_t ranks = 0;
  std::uint32_t last_rank = 0;  // Index into RunModel::ranks of the rank that arrived last.
  // Bytes as in nccl-tests: for an all-gather the contributions of all ranks, otherwise the payload of one
  // rank. If `ranks` is unknown, an all-gather has the bytes of its parts.
  std::uint64_t bytes = 0;
  std::int64_t first_arrival = 0;
  std::int64_t last_arrival = 0;
  bool arrivals_known = true;  // False: the trace has only the transfer.
};

// The part of one rank in a match.
struct CollectivePart {
  std::int64_t start = 0;  // Arrival of the rank.
  std::int64_t end = 0;
  std::uint32_t match = 0;  // Index into CollectiveMatches::matches.
};

struct CollectiveMatches {
  std::vector<CollectiveMatch> matches;            // Ordered by last arrival.
  std::vector<std::vector<CollectivePart>> parts;  // Indexed as RunModel::ranks; each ordered by start.
  // Collectives in the window that lack a rank of their communicator or a number.
  std::uint64_t unmatched = 0;
};

// Returns by how much the difference of two ranks' clocks may be off: the sum of the two largest residuals.
double clock_error_ms(const RunModel& run);

// Matches the collectives whose last arrival is in `window`. Ranks with unknown clocks have no
// parts. Sequence numbers that begin again after a restart are distinguished. With `of_mpi`, the
// program's own blocking MPI collectives on all ranks are matched, too. The trace has no numbers for
// them, but MPI requires every rank to call them in the same order.
// Memory: 24 bytes per rank and collective.
CollectiveMatches match_collectives(const RunModel& run, Interval window, bool of_mpi = false);

// Returns when this part waited for the last rank. Clock errors, or an operation that a rank may leave early,
// cannot make the wait longer than the part.
inline Interval wait_of(const CollectiveMatch& match, const CollectivePart& part) {
  return {part.start, match.last_arrival < part.end ? match.last_arrival : part.end};
}

struct CollectiveRow {
  std::string name, operation;
  std::uint64_t count = 0;
  Figure bytes;          // Median.
  double median_us = 0;  // Duration on a rank, including waiting.
  Figure wait_us;  // Mean over ranks and known arrivals; unknown if the run has only one of several ranks.
  double transfer_us = 0;  // Median; includes waiting if waiting is unknown.
  double transfer_p10_us = 0, transfer_p90_us = 0;
  Figure algbw_gbps;  // bytes / transfer, without waiting; a lower bound if waiting is unknown.
  Figure busbw_gbps;
  Figure of_proven;    // busbw divided by the best busbw of the fastest tenth of any row.
  double total_s = 0;  // Sum of the durations on all ranks.
  // The rank that arrives latest on average; nullopt if the ranks' clocks cannot tell.
  std::optional<int> last_rank;
  Figure last_share;             // Part of this rank's collectives in which it is the last to arrive.
  Figure late_us;                // Its mean arrival after the first rank.
  std::uint64_t last_count = 0;  // Its collectives with known arrivals; both figures are about them.

  // `us` is one of the times above that include waiting if waiting is unknown.
  Figure without_waiting(double us) const { return wait_us.value ? Figure::known(us) : wait_us; }
};

inline constexpr const char* one_rank_of_several =
    "the trace has only one of several ranks, so the arrival of the others is unknown";

// Returns one row per name and operation, ordered by total duration.
std::vector<CollectiveRow> collective_table(const RunModel& run, const CollectiveMatches& matches);

// Removes the variant from the name. PyTorch records an all-gather of one tensor as "_allgather_base", and
// of several as "allgather_into_tensor_coalesced".
std::string plain_operation(std::string_view operation);

// Returns nccl-tests' factor from algbw to busbw for two or more ranks; 1 for unknown operations.
double bus_factor(std::string_view operation, std::size_t ranks);

}  // namespace farandole
