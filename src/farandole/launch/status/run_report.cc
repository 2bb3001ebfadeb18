#include "farandole/launch/status/run_report.h"

#include <cstdio>
#include <fmt/format.h>

#include "farandole/base/files/atomic_file.h"
#include "farandole/base/process/program.h"
#include "farandole/launch/process/command_output.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

class Reporter {
 public:
  Reporter(fs::path run, std::chrono::seconds patience)
      : run_(std::move(run)), deadline_(std::chrono::steady_clock::now() + patience) {}

  // Returns what farandole-PROGRAM prints about the run; empty if it fails.
  std::string ask(const char* program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), (program_folder() / fmt::format("farandole-{}", program)).string());
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    if (left.count() <= 0) return "";
    const auto answer = run_command(arguments, left);
    return answer && answer->exit_code == 0 ? answer->text : "";
  }
  bool has(const char* name) const {
    std::error_code absent;
    return fs::exists(run_ / name, absent);
  }

 private:
  const fs::path run_;
  const std::chrono::steady_clock::time_point deadline_;
};

}  // namespace

void write_run_report(const fs::path& run, int exit_code, std::chrono::seconds patience) {
  Reporter reporter(run, patience);
  const auto folder = run.string(), html = (run / "report.html").string();
  std::string text;
  if (exit_code != 0) text = reporter.ask("doctor", {folder}) + "\n";
  if (!reporter.has("timeline.json.gz") && reporter.has("recorder"))
    reporter.ask("timeline", {"merge", folder});
  if (reporter.has("timeline.json.gz")) {
    const auto analysis = reporter.ask("analyze", {folder});
    reporter.ask("analyze", {folder, "--format", "html", "--output", html});
    if (analysis.empty() || !reporter.has("report.html"))
      fmt::print(stderr,
                 "farandole run: the report of the timeline is missing; write it with farandole analyze {}\n",
                 folder);
    text += analysis;
  }
  if (!text.empty() && !replace_file(run / "report.txt", text))
    fmt::print(stderr, "farandole run: {} cannot be written\n", (run / "report.txt").string());
}

}  // namespace farandole
