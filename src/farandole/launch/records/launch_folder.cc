#include "farandole/launch/records/launch_folder.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <sys/statvfs.h>
#include <system_error>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/run/earlier_starts.h"
#include "farandole/base/run/run_files.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// If the option is given several times, the last value counts, as in the program itself.
std::string value_of(const std::vector<std::string>& program, std::string_view option) {
  std::string value;
  for (std::size_t i = 1; i < program.size(); ++i) {
    const std::string_view word = program[i];
    if (word == option && i + 1 < program.size()) value = program[i + 1];
    if (word.starts_with(option) && word.substr(option.size()).starts_with('='))
      value = word.substr(option.size() + 1);
  }
  return value;
}

// The run directory that a training names on its command line.
fs::path run_of_training(const std::vector<std::string>& program) {
  const auto command = command_of(program);
  if (command != "train" && command != "fit") return {};
  if (auto run = value_of(program, "--run-dir"); !run.empty()) return run;
  const auto run = value_of(program, "--run"), store = value_of(program, "--store");
  return command == "fit" && !run.empty() ? fs::path(store.empty() ? "runs" : store) / run : fs::path();
}

bool is_same_folder(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  const auto whole = [&](const fs::path& path) {
    return fs::weakly_canonical(fs::absolute(path) / "", ignored);
  };
  return whole(a) == whole(b);
}

}  // namespace

std::string command_of(const std::vector<std::string>& program) {
  constexpr std::string_view prefix = "farandole-";
  const auto name = program.empty() ? "" : fs::path(program.front()).filename().string();
  if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name == "farandole" && program.size() > 1 ? program[1] : "";
}

LaunchedRun find_launched_run(const std::vector<std::string>& program, const fs::path& run_dir,
                              const fs::path& log_folder, const Environment& environment) {
  const auto of_training = run_of_training(program);
  if (!run_dir.empty()) {
    if (!of_training.empty() && !is_same_folder(of_training, run_dir))
      throw UserError(fmt::format(
          "--run-dir of farandole run is {}, and --run-dir of the training is {}; give only one, or the "
          "same folder",
          run_dir.string(), of_training.string()));
    return {fs::absolute(run_dir), true};
  }
  const auto logs = log_folder.has_filename() ? log_folder : log_folder.parent_path();
  if (logs.filename() == "logs") return {fs::absolute(logs).parent_path(), true};
  if (!of_training.empty()) return {fs::absolute(of_training), false};
  if (const char* folder = environment("FARANDOLE_RUN_DIR"); folder != nullptr && *folder != '\0')
    return {fs::absolute(folder), false};
  return {};
}

LaunchFolder::LaunchFolder(LaunchedRun run) : run_(std::move(run)), before_(state()) {}

LaunchFolder::State LaunchFolder::state() const {
  State state;
  if (run_.folder.empty()) return state;
  state.run_json_ns = changed_ns(run_json_of(run_.folder));
  state.recorder_ns = changed_ns(run_.folder / "recorder");
  return state;
}

bool LaunchFolder::make(bool failed, int exit_code) const {
  if (run_.folder.empty()) return false;
  const auto code = static_cast<ExitCode>(exit_code);
  const bool refused = code == ExitCode::user_error || code == ExitCode::corrupt_input;
  if (!run_.logged && (!failed || refused) && state() == before_) return false;
  std::error_code error;
  fs::create_directories(folder(), error);
  return !error;
}

bool LaunchFolder::begin(const JobRecord& job) {
  if (!make(false, 0)) return false;
  if (run_.logged) keep_earlier_job(folder());  // Else the session has kept the record of the earlier start.
  write_job(folder() / "job.json", job);
  return true;
}

void LaunchFolder::end(const RankRecord& rank) {
  if (make(rank.failed(), rank.exit_code)) write_record(folder(), rank);
}

void LaunchFolder::end(const JobRecord& job, const std::vector<RankRecord>& ranks) {
  if (!make(job.exit_code != 0, job.exit_code)) return;
  const auto there = read_records(folder());
  for (const auto& rank : ranks)
    if (std::none_of(there.begin(), there.end(),
                     [&](const auto& one) { return one.rank == rank.rank && one.launch == rank.launch; }))
      write_record(folder(), rank);
  write_job(folder() / "job.json", job);
}

bool LaunchFolder::has_recorded() const {
  return state().recorder_ns != before_.recorder_ns;
}

std::optional<std::int64_t> LaunchFolder::free_bytes() const {
  struct statvfs status {};
  if (run_.folder.empty() || ::statvfs(run_.folder.c_str(), &status) != 0) return std::nullopt;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace farandole
