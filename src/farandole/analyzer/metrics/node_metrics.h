// The figures of the ranks, combined by node. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

// Sums over the ranks of a host, in seconds. Lateness is over all of their steps.
struct NodeMetrics {
  std::string host;
  std::size_t ranks = 0;
  Figure compute_s, communication_s, exposed_s, other_s, idle_s;
  Figure overlap;  // Fraction of communication.
  Figure wait_s;
  Figure lateness_median_ms, lateness_p95_ms;
  std::optional<GpuShares> gpu;
};

// Ordered by host name. Ranks with unknown hosts are left out.
std::vector<NodeMetrics> node_metrics(const RunMetrics& metrics);

}  // namespace farandole
