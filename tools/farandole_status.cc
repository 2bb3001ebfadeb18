// farandole status RUN...: says what runs are doing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/launch/run_status.h"

namespace {

struct Options {
  std::vector<std::string> runs;
  std::string format = "text";
  bool watch = false;
};

// Returns false after --help.
bool parse(int argc, char** argv, Options& options) {
  namespace po = boost::program_options;
  farandole::OptionParser parser;
  parser.usage =
      "Usage: farandole status RUN... [--watch] [--format text|json]\n\n"
      "Says what a run is doing: its state, step and rate, the time left, the newest checkpoint and the restarts.\n"
      "It reads only the run directory, so the run may be on other hosts. Several runs give a table. Where Slurm\n"
      "can be asked, its state of the job is shown too.\n\n"
      "Examples:\n"
      "  $ farandole status RUN\n"
      "  $ farandole status RUN --watch\n";
  parser.visible.add_options()(
      "watch", po::bool_switch(&options.watch),
      "show the state again whenever it changes, until every run has ended and Slurm will not start it "
      "again")("format", po::value(&options.format), "text or json")("run", po::value(&options.runs),
                                                                     "run directory (positional argument)");
  parser.positional.add("run", -1);
  if (!parser.parse(argc, argv)) return false;
  farandole::check_format(options.format);
  if (options.runs.empty()) throw farandole::UserError("no run given; name a run directory");
  return true;
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 0;
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  for (const auto& folder : options.runs)
    for (const auto& warning : farandole::read_run_facts(farandole::run_json_of(folder)).warnings)
      fmt::print(stderr, "farandole status: {}\n", farandole::printable(warning));
  std::string shown;
  for (;;) {
    std::vector<farandole::RunStatus> runs;
    for (const auto& folder : options.runs) runs.push_back(farandole::read_run_status(folder));
    const auto text = options.format == "json" ? status_json(runs) : status_text(runs);
    if (text != shown) fmt::print("{}{}", options.watch && terminal ? "\x1b[H\x1b[J" : "", text);
    shown = text;
    if (std::fflush(stdout) != 0) throw farandole::Error("stdout cannot be written");
    const bool over =
        std::none_of(runs.begin(), runs.end(), [](const auto& one) { return is_under_way(one.state); });
    if (!options.watch || over) return 0;
    std::this_thread::sleep_for(std::chrono::seconds(5));  // Slurm is asked each time.
  }
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole status", [&] { return run(argc, argv); });
}
