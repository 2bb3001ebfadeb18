// farandole analyze RUN…: where the time of one or more runs went, as text, JSON or HTML.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "farandole/analyzer/report.h"
#include "farandole/analyzer/report_html.h"
#include "farandole/analyzer/report_json.h"
#include "farandole/analyzer/report_text.h"
#include "farandole/base/atomic_file.h"
#include "farandole/base/error.h"
#include "farandole/base/options.h"

namespace {

using farandole::ExitCode;

void complain(const char* message) {
  std::fprintf(stderr, "farandole analyze: %s\n", message);
}

struct Options {
  std::vector<std::string> runs;
  std::string format = "text";
  std::string output;
};

// False after --help.
bool parse(int argc, char** argv, Options& options) {
  namespace po = boost::program_options;
  farandole::OptionParser parser;
  parser.usage =
      "Usage: farandole analyze RUN... [--format text|json|html] [-o FILE]\n\n"
      "Says where the time of a run went. RUN is a run directory or a Chrome trace (gzip or not); runs of\n"
      "several sizes give a scaling table.\n";
  parser.visible.add_options()("format", po::value(&options.format),
                               "text, json, or html: one file that opens offline")(
      "output,o", po::value(&options.output), "file to write, instead of stdout")(
      "run", po::value(&options.runs), "a run; the word alone does");
  parser.positional.add("run", -1);
  if (!parser.parse(argc, argv)) return false;
  if (options.format != "text" && options.format != "json" && options.format != "html")
    throw farandole::UserError("--format " + options.format + " is not known; use text, json or html");
  if (options.runs.empty()) throw farandole::UserError("no run given; name a run directory or a trace");
  return true;
}

// Damaged runs beside sound ones are named and left out; one alone is an error.
std::vector<farandole::RunReport> analyze(const std::vector<std::string>& paths) {
  std::vector<farandole::RunReport> runs;
  for (const auto& path : paths) {
    try {
      runs.push_back(farandole::analyze_run(path));
    } catch (const farandole::CorruptInput& error) {
      if (paths.size() == 1) throw;
      complain(error.what());
    }
  }
  if (runs.empty()) throw farandole::CorruptInput("none of the runs can be analyzed");
  return runs;
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return static_cast<int>(ExitCode::done);
  const auto report = farandole::report_of(analyze(options.runs));
  const bool colour =
      options.output.empty() && isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const auto text = options.format == "json"   ? farandole::report_json(report)
                    : options.format == "html" ? farandole::report_html(report, options.output)
                                               : farandole::report_text(report, colour);
  if (!options.output.empty())
    farandole::write_file_atomically(options.output, text);
  else if (!(std::cout << text << std::flush))
    throw farandole::Error("the report cannot be written to stdout");
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const farandole::Error& error) {
    complain(error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    complain(error.what());
    return static_cast<int>(ExitCode::failure);
  }
}
