// The chain of work across ranks that determines the run time. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/analyzer/model/phases.h"
#include "farandole/analyzer/model/run_model.h"

namespace farandole {

struct RunMetrics;

struct PathOfRank {
  std::size_t rank_index = 0;
  PhaseTimes phases{};    // Nanoseconds of its training thread on the path.
  std::int64_t idle = 0;  // Nanoseconds on the path that no span covers.
  std::int64_t total() const;
};

// The sum of all parts is the window.
struct CriticalPath {
  std::string unknown;            // Why there is no path; then the other members are empty.
  std::vector<PathOfRank> ranks;  // Ranks on the path, the longest part first.
  std::int64_t transfer = 0;  // Collectives after their last arrival, as far as compute does not hide them.
  std::uint64_t changes = 0;  // How often the path changes from one rank to another.
};

// Walks backwards from the end of the last rank. A wait leads to the rank that arrived last at the collective
// that ended the wait. The ranks on the path are unpacked once more.
CriticalPath find_critical_path(const RunModel& run, const RunMetrics& metrics);

}  // namespace farandole
