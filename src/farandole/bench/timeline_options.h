// The command line of `farandole bench timeline`. Plain values.
#pragma once

#include <string>
#include <vector>

#include "farandole/bench/timeline_benchmark.h"
#include "farandole/bench/timeline_report.h"

namespace farandole {

struct TimelineCommandOptions {
  TimelineBenchmarkOptions recorder;  // Its folder is not set.
  std::string folder;                 // Folder for the recorder files.
  std::vector<std::string> models;    // Models whose steps run with and without the timeline.
  double seconds = 60;                // Per model.
  bool json = false;

  // argv[1] is "timeline". Returns false after --help.
  // Throws: UserError if an option is wrong.
  bool parse(int argc, const char* const* argv);
};

// Measures everything except the training steps, in one process.
TimelineReport measure_recorder(TimelineCommandOptions options);

}  // namespace farandole
