// The chain of work that the run's length hangs on, across ranks. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/model/run_model.h"

namespace farandole {

struct PathOfRank {
  std::size_t rank_index = 0;
  PhaseTimes phases{};    // ns of its training thread that lie on the path
  std::int64_t idle = 0;  // ns on the path that nothing covers
  std::int64_t total() const;
};

// The parts add up to the window.
struct CriticalPath {
  std::string unknown;            // why there is none; then the rest is empty
  std::vector<PathOfRank> ranks;  // that are on it, the longest first
  std::int64_t transfer = 0;      // collectives from their last arrival on
  std::uint64_t changes = 0;      // how often it goes from one rank to another
};

// Walked backwards from the end of the last rank: a wait leads to the rank that arrived last at the
// collective which ended it. Unpacks the ranks that are on the path once more.
CriticalPath find_critical_path(const RunModel& run, const RunMetrics& metrics);

}  // namespace farandole
