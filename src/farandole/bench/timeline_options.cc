#include "farandole/bench/timeline_options.h"

#include <filesystem>

#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/split.hpp>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/temporary_folder.h"

namespace farandole {

bool TimelineCommandOptions::parse(int argc, const char* const* argv) {
  namespace po = boost::program_options;
  folder = std::filesystem::temp_directory_path().string();
  std::string model_names = "gpt,mnist", format = "text";
  OptionParser parser;
  parser.usage =
      "usage: farandole bench timeline [OPTION]…\n"
      "       farandole run -n 2 -- farandole bench timeline [OPTION]…\n"
      "What a span costs beside its two clock reads, how fast recorders' files become a trace, and what a\n"
      "killed process loses; on two ranks or more also what the timeline, and PyTorch's profiler, add to\n"
      "training steps. The measurements take turns.\n";
  parser.visible.add_options()("folder", po::value(&folder)->default_value(folder),
                               "where the recorders' files lie: what a run's --run-dir is on counts")(
      "repetitions", po::value(&recorder.repetitions)->default_value(recorder.repetitions),
      "of 20000 spans each")("ranks", po::value(&recorder.merge_ranks)->default_value(recorder.merge_ranks),
                             "of the merged run")(
      "events", po::value(&recorder.merge_events)->default_value(recorder.merge_events), "of each rank")(
      "kills", po::value(&recorder.kills)->default_value(recorder.kills), "of a process that records")(
      "model", po::value(&model_names)->default_value(model_names),
      "that trains: mlp, gpt or mnist; several are separated by commas")(
      "seconds", po::value(&seconds)->default_value(seconds), "of each model's steps, about")(
      "format", po::value(&format)->default_value(format), "text or json");
  if (!parser.parse(argc - 1, argv + 1)) return false;
  if (recorder.repetitions < 1) throw UserError("--repetitions must be at least 1");
  if (recorder.merge_ranks < 1 || recorder.merge_ranks > 10'000)
    throw UserError("--ranks must be between 1 and 10000");
  if (recorder.merge_events < 100) throw UserError("--events must be at least 100");
  if (recorder.kills < 1) throw UserError("--kills must be at least 1");
  if (!(seconds > 0 && seconds <= 86'400)) throw UserError("--seconds must be above 0 and at most 86400");
  if (format != "text" && format != "json")
    throw UserError("--format cannot be '" + format + "'; it is text or json");
  boost::split(models, model_names, boost::is_any_of(","));
  json = format == "json";
  return true;
}

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

}  // namespace farandole
