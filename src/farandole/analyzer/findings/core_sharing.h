// Which ranks wait for a core, because several ranks, or other threads, use the same one. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

// Returns whether the rank waits for a core for at least 5 % of the window. Less is due to services of the
// system, and to a rank's own threads.
bool lacks_a_core(const RankMetrics& rank, const RunMetrics& metrics);

struct CoreSharing {
  std::string who;     // "ranks 0, 1 share core 3 of node1"; of several nodes, the one that waits most
  std::string idle;    // "cores 0-2 of node1 are idle"; "": none, or unknown
  double longest = 0;  // Part of the window in which one rank waits; the most of all ranks.
};

CoreSharing find_core_sharing(const RunMetrics& metrics);

}  // namespace farandole
