#include <fmt/format.h>

#include "farandole/bench/timeline_command.h"
#include "farandole/bench/timeline_options.h"
#include "farandole/bench/timeline_report.h"

namespace farandole {

int timeline_command(int argc, const char* const* argv) {
  TimelineCommandOptions options;
  if (!options.parse(argc, argv)) return 0;
  const auto report = measure_recorder(options);
  if (options.json)
    fmt::print("{}\n", to_json(report).dump(1));
  else
    fmt::print("{}\nTraining steps are left out: this build has no LibTorch.\n", to_text(report));
  return 0;
}

}  // namespace farandole
