// farandole analyze RUN...: reports where the time of one or more runs went, as text, JSON or HTML.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "farandole/analyzer.h"
#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/base/text/phrases.h"
#include "farandole/timeline/merge/run_recorders.h"

namespace {

using farandole::ExitCode;

void complain(std::string_view message) {
  std::fprintf(stderr, "farandole analyze: %s\n", farandole::printable(message).c_str());
}

struct Options {
  std::vector<std::string> runs;
  std::string format;
  std::string output;
  std::vector<std::string> against;
  farandole::AnalysisOptions analysis;
};

// Earlier versions wrote tables as CSV and predicted runs.
void refuse_what_is_gone(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (const auto option = words[i].substr(0, words[i].find('='));
        option == "--what-if" || option == "--validate")
      throw farandole::UserError(
          option +
          " is gone; the findings of farandole analyze RUN say how much a change gains at most, and "
          "farandole analyze RUN --against OLD says what it gained");
    if (words[i] == "--table" || words[i].starts_with("--table=") || words[i] == "--format=csv" ||
        (words[i] == "csv" && i > 0 && words[i - 1] == "--format") ||
        (words[i].ends_with(".csv") && i > 0 && (words[i - 1] == "-o" || words[i - 1] == "--output")))
      throw farandole::UserError(
          "CSV is no longer written; use --format json and make tables of it with pandas or jq, as "
          "docs/analyzing.md shows");
  }
}

// The format that the suffix of a file names; "" for other suffixes.
std::string format_of(const std::filesystem::path& file) {
  const auto suffix = file.extension();
  if (suffix == ".html" || suffix == ".htm") return "html";
  if (suffix == ".json") return "json";
  return suffix == ".txt" ? "text" : "";
}

// --format, or else what the name of the output says, or else text.
void choose_format(Options& options) {
  const auto named = format_of(options.output);
  if (options.format.empty()) {
    options.format = named.empty() ? "text" : named;
    return;
  }
  farandole::check_format(options.format, {"text", "json", "html"});
  if (!named.empty() && named != options.format)
    throw farandole::UserError("--format " + options.format + " contradicts the name of -o " +
                               options.output + "; leave out --format, or name the file otherwise");
}

// Returns false after --help.
bool parse(int argc, char** argv, Options& options) {
  refuse_what_is_gone({argv + 1, argv + argc});
  namespace po = boost::program_options;
  farandole::OptionParser parser;
  parser.usage =
      "Usage: farandole analyze RUN... [-o FILE] [--format text|json|html] [--against RUN...]\n\n"
      "Reports where the time of a run went. RUN is a run directory, a Chrome trace, a Horovod\n"
      "timeline, a trace of the profilers of PyTorch or XLA, an SQLite export of Nsight Systems, or a folder\n"
      "of the last three with one file per rank or host. The format is detected automatically.\n"
      "Runs with different numbers of ranks give a scaling table.\n\n"
      "Examples:\n"
      "  $ farandole analyze RUN\n"
      "  $ farandole analyze RUN -o report.html\n"
      "  $ farandole analyze RUN RUN2 --against OLD OLD2\n";
  parser.visible.add_options()(
      "format", po::value(&options.format),
      "text, json or html. html is one file that needs no network. Without this option, the suffix of the output "
      "chooses it (.txt, .json, .html), or else it is text")(
      "output,o", po::value(&options.output), "write the report to this file instead of stdout")(
      "against", po::value(&options.against)->multitoken(),
      "compare the first RUN with these runs. The report says what changed and whether the change is larger "
      "than chance. Repeated runs on both sides (RUN RUN2 --against OLD OLD2) are used to estimate run-to-run "
      "variance")(
      "fail-on", po::value(&options.analysis.fail_on),
      "end with exit code 1 if one of these conditions holds or cannot be checked, for example "
      "throughput<-5%,overlap<0.5. With % the change against the other run is checked, otherwise the value "
      "itself")("run", po::value(&options.runs), "run directory or trace (positional argument)");
  parser.positional.add("run", -1);
  if (!parser.parse(argc, argv)) return false;
  choose_format(options);
  if (options.runs.empty())
    throw farandole::UserError(options.against.empty() ? "no run given; name a run directory or a trace"
                                                       : "no run given; name runs before --against");
  return true;
}

std::string written(const farandole::Analysis& analysis, const Options& options) {
  if (options.format == "json") return analysis.json();
  if (options.format == "html") return analysis.html(options.output);
  const bool colour =
      options.output.empty() && isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  return analysis.text(colour);
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return static_cast<int>(ExitCode::done);
  options.analysis.against.assign(options.against.begin(), options.against.end());
  options.analysis.warn = [](const std::string& line) { complain(line); };
  for (const auto& folder : options.runs) {
    try {
      if (farandole::complete_run(folder))
        complain("wrote " + (std::filesystem::path(folder) / "timeline.json.gz").string());
    } catch (const farandole::Error& error) {
      complain("the recorders are read each time, because no trace can be written: " +
               std::string(error.what()));
    }
  }
  const farandole::Analysis analysis({options.runs.begin(), options.runs.end()}, options.analysis);
  const auto text = written(analysis, options);
  if (!options.output.empty())
    farandole::write_file_atomically(options.output, text);
  else if (!(std::cout << text << std::flush))
    throw farandole::Error("the report cannot be written to stdout");
  for (const auto& failure : analysis.failures()) complain(failure);
  return static_cast<int>(analysis.failures().empty() ? ExitCode::done : ExitCode::failure);
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole analyze", [&] { return run(argc, argv); });
}
