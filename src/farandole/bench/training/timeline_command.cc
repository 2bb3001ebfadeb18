#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/options.h"
#include "farandole/base/text/phrases.h"
#include "farandole/bench/commands.h"
#include "farandole/bench/timeline_benchmark.h"
#include "farandole/bench/timeline_report.h"
#include "farandole/train/session.h"

namespace farandole {
namespace {

struct TimelineCommandOptions {
  TimelineBenchmarkOptions recorder;  // Its folder is not set.
  std::string folder;                 // Folder for the recorder files.
  std::vector<std::string> models;    // Models whose steps run with and without the timeline.
  double seconds = 60;                // Per model.
  bool json = false;

  bool parse(int argc, const char* const* argv);  // returns false after --help
};

bool TimelineCommandOptions::parse(int argc, const char* const* argv) {
  namespace po = boost::program_options;
  folder = std::filesystem::temp_directory_path().string();
  std::string model_names = "gpt,mnist", format = "text";
  OptionParser parser;
  parser.usage =
      "Usage: farandole bench timeline [OPTION]...\n"
      "  or:  farandole run -n 2 -- farandole bench timeline [OPTION]...\n\n"
      "Measures the cost of a span compared with two clock reads, the speed of the merge, and the events "
      "that\n"
      "are lost when a process is killed. On two or more ranks it also measures the overhead of the "
      "timeline\n"
      "and of PyTorch's profiler on training steps. The measurements alternate.\n";
  parser.visible.add_options()(
      "folder", po::value(&folder)->default_value(folder),
      "folder for the recorder files; for realistic results, use the file system of your run directories")(
      "repetitions", po::value(&recorder.repetitions)->default_value(recorder.repetitions),
      "repetitions of 20000 spans")("ranks",
                                    po::value(&recorder.merge_ranks)->default_value(recorder.merge_ranks),
                                    "ranks of the merged run")(
      "events", po::value(&recorder.merge_events)->default_value(recorder.merge_events),
      "events of each rank of the merged run")(
      "kills", po::value(&recorder.kills)->default_value(recorder.kills),
      "number of recording processes to kill")("model", po::value(&model_names)->default_value(model_names),
                                               "models to train, separated by commas: mlp, gpt, mnist")(
      "seconds", po::value(&seconds)->default_value(seconds),
      "approximate duration of the steps of each model")("format", po::value(&format)->default_value(format),
                                                         "text or json");
  if (!parser.parse(argc - 1, argv + 1)) return false;
  if (recorder.repetitions < 1) throw UserError("--repetitions must be at least 1");
  if (recorder.merge_ranks < 1 || recorder.merge_ranks > 10'000)
    throw UserError("--ranks must be between 1 and 10000");
  if (recorder.merge_events < 100) throw UserError("--events must be at least 100");
  if (recorder.kills < 1) throw UserError("--kills must be at least 1");
  if (!(seconds > 0 && seconds <= 86'400)) throw UserError("--seconds must be above 0 and at most 86400");
  check_format(format);
  models = split_at_commas(model_names);
  json = format == "json";
  return true;
}

// Measures everything except the training steps, in one process.
TimelineReport measure_recorder(TimelineCommandOptions options) {
  const TemporaryFolder folder(options.folder);
  options.recorder.folder = folder.path();
  const MergeCost merge = measure_merge(options.recorder);
  return {measure_spans(options.recorder),
          merge,
          options.recorder.merge_ranks,
          measure_counters(options.recorder),
          measure_kills(options.recorder.folder, options.recorder.kills),
          measure_mpi_calls(options.recorder.folder, options.recorder.repetitions),
          {}};
}

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
    report.training.push_back(benchmark_overhead(session, model, options.seconds));
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
      fmt::print("{}\n", json_text(to_json(report), 1));
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
