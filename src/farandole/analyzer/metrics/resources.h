// CPU, memory and GPU memory that the ranks have used, and what the job was given. Plain values
// and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

struct RankResources {
  int rank = 0;
  std::string host;
  LoggedUse use;
};

// Of one node: of several, the one whose ranks have used the most.
struct Resources {
  std::vector<RankResources> ranks;  // Ranks of which something is known, in their order.
  std::size_t nodes = 0;
  std::optional<double> asked_cores, asked_mib;  // For all ranks of a node.
  std::optional<double> busy_cores, used_mib;    // Sums over its ranks: mean load, and most memory of each.

  // "asked 64 GiB, used 1.3; 2 cores, 1.9 busy"; "" if nothing is known.
  std::string text() const;
};

// CPU is that of metrics.jsonl, or else of the trace's counters, and memory is the most of both.
Resources resources_of(const RunModel& run);

std::string gib_text(double mib);  // "64", "1.3" or "0.25", without the unit.

}  // namespace farandole
