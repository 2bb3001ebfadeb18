// Writes the output of `farandole bench timeline`. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/base/text/json.h"
#include "farandole/bench/overhead.h"
#include "farandole/bench/timeline_benchmark.h"

namespace farandole {

struct TimelineReport {
  SpanCost span;
  MergeCost merge;
  int merge_ranks = 0;
  double counters_us = 0;  // Processor time of one sample; there is one sample per second.
  KillLoss killed;
  std::optional<MpiCallCost> mpi_call;
  std::vector<TrainingOverhead> training;
};

// A table of measured values and targets.
std::string to_text(const TimelineReport& report);
// Includes the object `machine` of machine_facts().
Json to_json(const TimelineReport& report);

}  // namespace farandole
