// farandole status RUN...: says what runs are doing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/launch/run_status.h"

namespace {

namespace fs = std::filesystem;

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
      "Usage: farandole status [RUN...] [--watch] [--format text|json]\n\n"
      "Says what a run is doing: its state, step and rate, the time left, the newest checkpoint and the restarts.\n"
      "It reads only the run directory, so the run may be on other hosts. Several runs, or a folder of them, give a\n"
      "table; without RUN, it is farandole-runs, or $FARANDOLE_RUNS. Where Slurm can be asked, its state of the job is\n"
      "shown too.\n\n"
      "Examples:\n"
      "  $ farandole runs\n"
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
  const char* const all = std::getenv("FARANDOLE_RUNS");
  if (options.runs.empty()) options.runs = {all != nullptr && *all != '\0' ? all : "farandole-runs"};
  return true;
}

// `folder` if it is a run directory, or else those in it, newest last.
std::vector<fs::path> runs_in(const fs::path& folder) {
  std::error_code ignored;
  const auto is_run = [&](const fs::path& path) {
    const auto has = [&](const char* name) { return fs::exists(path / name, ignored); };
    return has("recorder") || has("run.json") || has("launch/job.json") || has("submitted.json");
  };
  std::vector<std::pair<std::int64_t, fs::path>> found;
  if (!is_run(folder))
    for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
         entry.increment(ignored))
      if (const auto& path = entry->path(); is_run(path))
        found.emplace_back(std::max(farandole::changed_ns(path), farandole::changed_ns(path / "recorder")),
                           path);
  if (found.empty()) return {folder};  // If it is none, it is refused by name.
  std::sort(found.begin(), found.end());
  std::vector<fs::path> runs;
  for (auto& [changed, path] : found) runs.push_back(std::move(path));
  return runs;
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 0;
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  std::vector<fs::path> folders;
  for (const auto& folder : options.runs) {
    const auto found = runs_in(folder);
    folders.insert(folders.end(), found.begin(), found.end());
  }
  for (const auto& folder : folders)
    for (const auto& warning : farandole::read_run_facts(farandole::run_json_of(folder)).warnings)
      fmt::print(stderr, "farandole status: {}\n", farandole::printable(warning));
  std::string shown;
  std::vector<farandole::RunStatus> runs;
  for (std::int64_t asked_ns = 0;;) {
    // Slurm's controller serves all users of the cluster.
    const bool asks = asked_ns == 0 || farandole::seconds_since(asked_ns) >= 120;
    if (asks) asked_ns = farandole::now_ns();
    std::vector<farandole::RunStatus> now;
    for (std::size_t i = 0; i < folders.size(); ++i)
      now.push_back(farandole::read_run_status(folders[i], asks ? nullptr : &runs[i]));
    runs = std::move(now);
    const auto text = options.format == "json" ? status_json(runs) : status_text(runs);
    if (text != shown) fmt::print("{}{}", options.watch && terminal ? "\x1b[H\x1b[J" : "", text);
    shown = text;
    if (std::fflush(stdout) != 0) throw farandole::Error("stdout cannot be written");
    const bool over =
        std::none_of(runs.begin(), runs.end(), [](const auto& one) { return is_under_way(one.state); });
    if (!options.watch || over) return 0;
    std::this_thread::sleep_for(std::chrono::seconds(5));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole status", [&] { return run(argc, argv); });
}
