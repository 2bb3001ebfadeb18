// The command line of `farandole bench timeline`. Plain values.
#pragma once

#include <string>
#include <vector>

#include "farandole/bench/timeline_benchmark.h"
#include "farandole/bench/timeline_report.h"

namespace farandole {

struct TimelineCommandOptions {
  TimelineBenchmarkOptions recorder;  // but for its folder
  std::string folder;                 // where the recorders' files are to lie
  std::vector<std::string> models;    // whose steps are taken with the timeline and without
  double seconds = 60;                // of each model
  bool json = false;

  // argv[1] is "timeline". False after --help; throws UserError.
  bool parse(int argc, const char* const* argv);
};

// All but the training steps. By one process.
TimelineReport measure_recorder(TimelineCommandOptions options);

}  // namespace farandole
