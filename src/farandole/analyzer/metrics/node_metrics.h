// The ranks' figures added up by node. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

// Of a host's ranks together, in seconds; lateness of all of their steps.
struct NodeMetrics {
  std::string host;
  std::size_t ranks = 0;
  Figure compute_s, communication_s, exposed_s, other_s, idle_s;
  Figure overlap;  // of communication
  Figure wait_s;
  Figure lateness_median_ms, lateness_p95_ms;
  std::optional<GpuShares> gpu;
};

// By host name; ranks whose host is not known are left out.
std::vector<NodeMetrics> node_metrics(const RunMetrics& metrics);

}  // namespace farandole
