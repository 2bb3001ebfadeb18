// farandole timeline merge|slice|salvage|export: traces from the recorders' files of a run, after the fact.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "farandole/analyzer/formats/kineto_export.h"
#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/timeline/merge/run_recorders.h"

namespace {

using namespace farandole;
namespace fs = std::filesystem;

constexpr const char* usage =
    "farandole timeline merge|slice|salvage|export RUN [OPTION]…      farandole timeline merge --help\n\n"
    "  merge     RUN/recorder/*.ftl into one trace, RUN/timeline.json.gz\n"
    "  slice     some ranks' or steps' events into a trace of their own\n"
    "  salvage   what a killed or failed run has left, and what is lost of it\n"
    "  export    for Holistic Trace Analysis: one file a rank, as PyTorch's profiler writes them\n";

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
    return "Merges what the ranks have recorded into one trace for chrome://tracing and Perfetto.";
  if (what == "slice") return "A trace of some ranks or steps, to look at, or to send to somebody.";
  if (what == "export") return "One file a rank in the form of PyTorch's profiler, which other tools read.";
  return "Says of each file what could be read and what is lost, and merges what there is.";
}

// False after --help.
bool parse(const std::string& what, int argc, char** argv, Arguments& arguments) {
  namespace po = boost::program_options;
  OptionParser parser;
  parser.usage = fmt::format("usage: farandole timeline {} RUN [OPTION]…\n{}\n", what, description_of(what));
  auto add = parser.visible.add_options();
  if (what == "export")
    add("kineto", po::value(&arguments.kineto), "the folder to write rank-0000.json.gz and so on to");
  else
    add("output,o", po::value(&arguments.output),
        what == "slice" ? "the trace to write" : "the trace to write, instead of RUN/timeline.json.gz");
  if (what == "slice" || what == "export") {
    add("ranks", po::value(&arguments.ranks), "for example 0,3-5; all");
    add("steps", po::value(&arguments.steps), "first and last, for example 100-200; all");
  } else {
    add("merge-limit", po::value(&arguments.merge_limit)->default_value(arguments.merge_limit),
        "ranks in the trace; of more, the first, the last, the slowest and a sample; 0: all");
  }
  add("run", po::value(&arguments.run), "the run directory, or one recorder's file; the word alone does");
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
               file.closed ? "" : ", the rank did not end in order");
    if (file.overwritten > 0) fmt::print(", {} oldest overwritten before", file.overwritten);
    if (file.dropped > 0) fmt::print(", {} dropped for want of room", file.dropped);
    if (file.damaged > 0) fmt::print(", {} lost", file.damaged);
    fmt::print("\n");
  }
  for (const std::string& problem : file.problems) fmt::print("  {}\n", problem);
}

void merge(RunRecorders run, const fs::path& output) {
  if (!run.left_out.empty()) fmt::print("{}\n", run.left_out);
  const MergeResult result = merge_timelines(std::move(run.ranks), output);
  if (result.left_early > 0)
    fmt::print("{} times a rank left a collective before another came: its clock does not explain it\n",
               result.left_early);
  fmt::print("{}: {}\n", output.string(), count(result.events, "event"));
}

int run(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "--help" || what == "-h") {
    fmt::print("{}", usage);
    return 0;
  }
  if (what != "merge" && what != "slice" && what != "salvage" && what != "export")
    throw UserError(what.empty() ? "say what to do: merge, slice, salvage or export"
                                 : "no '" + what + "'; there are merge, slice, salvage and export");
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
  const bool sound = recorders.sound();
  if (what == "export")
    fmt::print("{}: {}\n", output.string(), count(export_kineto(std::move(recorders.ranks), output), "file"));
  else
    merge(std::move(recorders), output);
  return static_cast<int>(sound ? ExitCode::done : ExitCode::corrupt_input);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const farandole::Error& error) {
    fmt::print(stderr, "farandole timeline: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "farandole timeline: {}\n", error.what());
    return static_cast<int>(farandole::ExitCode::failure);
  }
}
