// What `farandole bench timeline` prints. Plain functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "farandole/bench/kill_benchmark.h"
#include "farandole/bench/mpi_call_benchmark.h"
#include "farandole/bench/overhead.h"
#include "farandole/bench/timeline_benchmark.h"

namespace farandole {

struct TimelineReport {
  SpanCost span;
  MergeCost merge;
  int merge_ranks = 0;
  double counters_us = 0;  // of processor time, once a second
  KillLoss killed;
  std::optional<MpiCallCost> mpi_call;
  std::vector<TrainingOverhead> training;
};

// What was measured beside what is to be reached.
std::string to_text(const TimelineReport& report);
// With the object `machine` of machine_facts().
nlohmann::json to_json(const TimelineReport& report);

}  // namespace farandole
