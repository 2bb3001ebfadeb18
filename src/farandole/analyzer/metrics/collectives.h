// Matches collectives across ranks and says what of each was waiting and what transfer. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/metrics/interval.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

// One collective on all ranks of its communicator.
struct CollectiveMatch {
  std::uint32_t name = 0;
  std::uint32_t operation = 0;
  std::uint32_t part_count = 0;
  std::uint32_t ranks = 0;  // of its communicator: more than parts where the run lacks ranks; 0: not known
  std::uint32_t last_rank = 0;  // index into RunModel::ranks of the rank that arrived last
  // As nccl-tests counts them: of an all-gather all ranks' contributions, else one rank's payload. An
  // all-gather of which `ranks` is unknown has those of its parts.
  std::uint64_t bytes = 0;
  std::int64_t first_arrival = 0;
  std::int64_t last_arrival = 0;
};

// One rank's part of a match.
struct CollectivePart {
  std::int64_t start = 0;  // arrival
  std::int64_t end = 0;
  std::uint32_t match = 0;  // index into CollectiveMatches::matches
};

struct CollectiveMatches {
  std::vector<CollectiveMatch> matches;            // by last arrival
  std::vector<std::vector<CollectivePart>> parts;  // by index into RunModel::ranks, by start
  std::uint64_t unmatched =
      0;  // in the window, but not seen on every rank of their communicator, or without a number
};

// Those whose last arrival lies in `window`. Ranks whose clocks are unknown have no parts. Sequence numbers
// that begin anew (after a restart) are told apart. Memory: 24 bytes a rank and collective.
CollectiveMatches match_collectives(const RunModel& run, Interval window);

// When this part waited for the last rank; clocks that are off, or an operation that may leave early, cannot
// make it longer than the part itself.
inline Interval wait_of(const CollectiveMatch& match, const CollectivePart& part) {
  return {part.start, match.last_arrival < part.end ? match.last_arrival : part.end};
}

struct CollectiveRow {
  std::string name, operation;
  std::uint64_t count = 0;
  Figure bytes;            // median
  double median_us = 0;    // duration on a rank, waiting included
  Figure wait_us;          // mean over ranks; unknown where the run has one rank of several
  double transfer_us = 0;  // median; where waiting is unknown it is in there
  double transfer_p10_us = 0, transfer_p90_us = 0;
  Figure algbw_gbps;  // bytes / transfer: waiting is not the network's; at least that where it is unknown
  Figure busbw_gbps;
  Figure of_proven;    // busbw as a fraction of the best busbw that any row's quickest tenth reached
  double total_s = 0;  // all ranks' durations added

  Figure known_transfer_us() const { return wait_us.value ? Figure::known(transfer_us) : wait_us; }
};

inline constexpr const char* one_rank_of_several =
    "the trace has one rank of several: when the others arrived is not in it";

// By name and operation, the one that took longest first.
std::vector<CollectiveRow> collective_table(const RunModel& run, const CollectiveMatches& matches);

// Without the variant: PyTorch writes all-gathers of one tensor as "_allgather_base", of several as
// "allgather_into_tensor_coalesced".
std::string plain_operation(std::string_view operation);

// nccl-tests' factor from algbw to busbw, of two ranks or more; 1 for operations that it does not know.
double bus_factor(std::string_view operation, std::size_t ranks);

}  // namespace farandole
