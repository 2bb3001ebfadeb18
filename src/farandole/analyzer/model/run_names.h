// Brings ranks that were read on their own, each with names of its own, into one run. One thread per object.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// What the numbers in a rank's collectives mean.
struct CollectedNames {
  std::vector<std::string> texts;          // of names and operations
  std::vector<std::string> communicators;  // of collectives that the trace itself does not number
};

class RunNames {
 public:
  explicit RunNames(RunModel& run) : run_(run) {}

  // The rank's numbers, which no clock has been aligned by yet, become the run's: equal names, equal numbers.
  // What is beyond 65,536 communicators is matched with nothing.
  void adopt(RankModel& rank, const CollectedNames& own);

 private:
  RunModel& run_;
  std::unordered_map<std::string, std::uint32_t> texts_, communicators_;
};

}  // namespace farandole
