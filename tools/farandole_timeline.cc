// farandole timeline merge|slice|salvage|export: writes traces from the recorder files of a run.
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "farandole/analyzer/formats/kineto_export.h"
#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/timeline/merge/run_recorders.h"

namespace {

using namespace farandole;
namespace fs = std::filesystem;

constexpr const char* usage =
    "Usage: farandole timeline merge|slice|salvage|export RUN [OPTION]...\n"
    "  or:  farandole timeline merge --help\n\n"
    "Writes traces from the recorder files of a run.\n\n"
    "Commands:\n"
    "  merge     merge RUN/recorder/*.ftl into one trace, RUN/timeline.json.gz\n"
    "  slice     write the events of some ranks or steps to a separate trace\n"
    "  salvage   read what a killed or failed run has recorded, and report what is lost\n"
    "  export    write one file per rank in the format of PyTorch's profiler, for Holistic Trace Analysis\n";

struct Arguments {
  std::string run;
  std::string output;
  std::string ranks;
  std::string steps;
  std::string kineto;
  std::size_t merge_limit = 64;
};

const char* description_of(const std::string& what) {
  if (what == "merge")
    return "Merges the records of all ranks into one trace for chrome://tracing and Perfetto.\n\n"
           "Examples:\n  $ farandole timeline merge RUN";
  if (what == "slice")
    return "Writes the events of some ranks or steps to a separate, smaller trace.\n\n"
           "Examples:\n  $ farandole timeline slice RUN --ranks 0-1 --steps 10-12 -o few.json.gz";
  if (what == "export")
    return "Writes one file per rank in the format of PyTorch's profiler, which other tools can read.\n\n"
           "Examples:\n  $ farandole timeline export RUN --kineto DIR";
  return "Reports for each file what can be read and what is lost, and merges what can be read. The exit\n"
         "code is 65 if something is lost.\n\n"
         "Examples:\n  $ farandole timeline salvage RUN";
}

// Returns false after --help.
bool parse(const std::string& what, int argc, char** argv, Arguments& arguments) {
  namespace po = boost::program_options;
  OptionParser parser;
  parser.usage =
      fmt::format("Usage: farandole timeline {} RUN [OPTION]...\n\n{}\n", what, description_of(what));
  auto add = parser.visible.add_options();
  if (what == "export")
    add("kineto", po::value(&arguments.kineto), "folder for the files rank-0000.json.gz and so on");
  else
    add("output,o", po::value(&arguments.output),
        what == "slice" ? "trace to write" : "trace to write instead of RUN/timeline.json.gz");
  if (what == "slice" || what == "export") {
    add("ranks", po::value(&arguments.ranks), "ranks to write, for example 0,3-5; the default is all ranks");
    add("steps", po::value(&arguments.steps),
        "first and last step, for example 100-200; the default is all steps");
  } else {
    add("merge-limit", po::value(&arguments.merge_limit)->default_value(arguments.merge_limit),
        "largest number of ranks in the trace; 0 means all. Above this limit, only the first, last and "
        "slowest ranks and a sample of the others are merged");
  }
  add("run", po::value(&arguments.run), "run directory or recorder file (positional argument)");
  parser.positional.add("run", 1);
  if (!parser.parse(argc, argv)) return false;
  if (arguments.run.empty()) throw UserError("no run given; name a run directory");
  return true;
}

fs::path output_of(const std::string& what, const Arguments& arguments) {
  if (!arguments.output.empty()) return arguments.output;
  if (what == "slice") throw UserError("name the trace to write: -o FILE.json.gz");
  if (fs::is_regular_file(arguments.run)) return fs::path(arguments.run).replace_extension(".json.gz");
  return fs::path(arguments.run) / "timeline.json.gz";
}

std::string count(std::uint64_t number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

void tell_of(const RecorderReport& file) {
  if (!file.readable) {
    fmt::print("{}: nothing can be read\n", file.file.string());
  } else {
    fmt::print("{}: rank {}, {} read{}", file.file.string(), file.rank, count(file.records, "event"),
               file.closed ? "" : ", the rank ended without closing the file");
    if (file.overwritten > 0) fmt::print(", {} older ones were overwritten", file.overwritten);
    if (file.dropped > 0) fmt::print(", {} were dropped because the recorder was full", file.dropped);
    if (file.damaged > 0) fmt::print(", {} are damaged", file.damaged);
    fmt::print("\n");
  }
  for (const std::string& problem : file.problems) fmt::print("  {}\n", problem);
}

void merge(RunRecorders run, const fs::path& output) {
  if (!run.left_out.empty()) fmt::print("{}\n", run.left_out);
  const MergeResult result = merge_timelines(std::move(run.ranks), output);
  if (result.left_early > 0)
    fmt::print(
        "{} times, a rank left a collective before another one entered it, by more than the clock error\n",
        result.left_early);
  fmt::print("{}: {}\n", output.string(), count(result.events, "event"));
}

int run(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "--help" || what == "-h") {
    fmt::print("{}", usage);
    return 0;
  }
  if (print_version(argc, argv)) return 0;
  if (what != "merge" && what != "slice" && what != "salvage" && what != "export")
    throw UserError(what.empty() ? "no command given; use merge, slice, salvage or export"
                                 : "unknown command '" + what + "'; use merge, slice, salvage or export");
  Arguments arguments;
  if (!parse(what, argc - 1, argv + 1, arguments)) return 0;
  if (what == "export" && arguments.kineto.empty())
    throw UserError("name the folder to write to: --kineto DIR");
  RunMergeOptions options;
  options.merge_limit = what == "slice" || what == "export" ? 0 : arguments.merge_limit;
  if (!arguments.ranks.empty()) options.ranks = RankSet::parse(arguments.ranks);
  if (!arguments.steps.empty()) options.steps = StepWindow::parse_steps(arguments.steps, "--steps");
  const fs::path output = what == "export" ? fs::path(arguments.kineto) : output_of(what, arguments);
  RunRecorders recorders = open_run(recorder_files(arguments.run), options);
  if (!recorders.earlier.empty()) fmt::print("{}\n", recorders.earlier);
  for (const RecorderReport& file : recorders.files)
    if (what == "salvage")
      tell_of(file);
    else
      for (const std::string& problem : file.problems)
        fmt::print(stderr, "farandole timeline: {}\n", problem);
  const bool lacks_ranks = fs::is_directory(arguments.run) && !recorders.missing.empty();
  if (lacks_ranks) fmt::print(stderr, "farandole timeline: {}\n", recorders.missing);
  const bool sound = recorders.sound() && !lacks_ranks;
  if (what == "export")
    fmt::print("{}: {}\n", output.string(), count(export_kineto(std::move(recorders.ranks), output), "file"));
  else
    merge(std::move(recorders), output);
  return static_cast<int>(sound ? ExitCode::done : ExitCode::corrupt_input);
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole timeline", [&] { return run(argc, argv); });
}
