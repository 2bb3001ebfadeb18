// RUN/launch: the records of the launcher and its supervisors about a job. `farandole doctor` reads them.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/records/rank_record.h"

namespace farandole {

// The launcher's knowledge of a run directory.
struct LaunchedRun {
  std::filesystem::path folder;  // Absolute path; empty: the launcher knows none.
  bool logged = false;           // Logs were requested, so records may always be written.
};

// The command of Farandole that these words call, for example "train"; empty for other programs.
std::string command_of(const std::vector<std::string>& program);

// The folder is the first of these: `run_dir`, `--log-dir RUN/logs`, the run directory that the arguments of
// `farandole train` or `farandole fit` name, and FARANDOLE_RUN_DIR. Without any of them, the ranks may still
// report it (launch/supervisor/supervised_run.h).
// Throws: UserError if `run_dir` and that of the training differ.
LaunchedRun find_launched_run(const std::vector<std::string>& program, const std::filesystem::path& run_dir,
                              const std::filesystem::path& log_folder, const Environment& environment);

class LaunchFolder {
 public:
  // Notes the contents of the run directory before the job begins.
  explicit LaunchFolder(LaunchedRun run);

  // These functions write their arguments; on errors they silently write nothing. If a job was
  // refused (exit code 64 or 65), the run directory stays unchanged, unless logs were requested or
  // the job had begun to run.
  // Returns whether it has written. A job whose ranks have not begun to run may still be refused.
  bool begin(const JobRecord& job);
  // Writes only the ranks whose records are missing.
  void end(const JobRecord& job, const std::vector<RankRecord>& ranks);
  void end(const RankRecord& rank);

  bool has_recorded() const;  // Since the begin of the job.
  std::optional<std::int64_t> free_bytes() const;

 private:
  struct State {
    std::int64_t run_json_ns = -1, recorder_ns = -1;  // Times of their last change.
    bool operator==(const State&) const = default;
  };
  State state() const;
  bool make(bool failed, int exit_code) const;
  std::filesystem::path folder() const { return run_.folder / "launch"; }

  LaunchedRun run_;
  State before_;
};

}  // namespace farandole
