#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <optional>

#include "farandole/base/temporary_folder.h"
#include "farandole/bench/commands.h"
#include "farandole/bench/timeline_options.h"
#include "farandole/bench/timeline_report.h"
#include "farandole/bench/training/overhead_benchmark.h"

namespace farandole {
namespace {

// The recorder files of the steps are in the folder that rank 0 used for the other recorders.
void measure_training(Session& session, const TimelineCommandOptions& options, TimelineReport& report) {
  std::optional<TemporaryFolder> folder;
  std::string path;
  session.together([&] {
    if (session.rank() != 0) return;
    folder.emplace(options.folder);
    path = folder->path();
  });
  session.broadcast(path);
  session.start_recording({.run_dir = path, .window = {.first = 1}});
  for (const auto& model : options.models)
    report.training.push_back(benchmark_overhead(session, model, {options.seconds}));
  session.publish_timeline();
  session.start_recording({.run_dir = {}, .window = {0, -1}});  // Closes the files.
  session.barrier();
  std::error_code ignored;  // For ranks on other nodes.
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

int timeline_command(int argc, const char* const* argv) {
  ::setenv("KINETO_LOG_LEVEL", "99", 0);  // Otherwise Kineto reports an error on a machine without a GPU.
  TimelineCommandOptions options;
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word = argv[i]; word == "--help" || word == "-h")
      return options.parse(argc, argv), 0;
  return run_session("farandole bench", argc, argv, [&](Session& session) {
    TimelineReport report;
    session.together([&] {
      options.parse(argc, argv);
      if (session.rank() == 0) report = measure_recorder(options);
    });
    if (session.size() > 1) measure_training(session, options, report);
    if (session.rank() != 0) return 0;
    if (options.json)
      fmt::print("{}\n", to_json(report).dump(1));
    else
      fmt::print("{}{}", to_text(report),
                 session.size() > 1
                     ? ""
                     : "\nTo measure the overhead of the timeline on training steps: farandole "
                       "run -n 2 -- farandole bench timeline\n");
    return 0;
  });
}

}  // namespace farandole
