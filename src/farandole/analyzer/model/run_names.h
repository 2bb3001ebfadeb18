// Combines ranks that were read separately, each with its own names, into one run.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// The meaning of the numbers in the collectives of a rank.
struct CollectedNames {
  std::vector<std::string> texts;          // Names and operations.
  std::vector<std::string> communicators;  // Communicators of collectives for which the trace has no number.
};

class RunNames {
 public:
  explicit RunNames(RunModel& run) : run_(run) {}

  // Replaces the numbers of the rank, whose clock must not be aligned yet, by those of the run. Equal names
  // get equal numbers. Communicators beyond 65,536 are not matched.
  void adopt(RankModel& rank, const CollectedNames& own);

 private:
  RunModel& run_;
  std::unordered_map<std::string, std::uint32_t> texts_, communicators_;
};

}  // namespace farandole
