// RUN/launch: what the launcher and its supervisors know of a job, for who asks later why it ended. One
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/launch_environment.h"
#include "farandole/launch/job_record.h"
#include "farandole/launch/rank_record.h"

namespace farandole {

// A run directory as far as the launcher knows of it.
struct LaunchedRun {
  std::filesystem::path folder;  // absolute; empty: the launcher knows of none
  bool logged = false;           // its logs were asked for, so that records are welcome in any case
};

// `run_dir`, where it is not empty, `--log-dir RUN/logs`, the --run-dir of `farandole train`, or
// FARANDOLE_RUN_DIR; none of them, and the ranks may still say it (run_question.h). Throws UserError where
// the first and the third are two.
LaunchedRun find_launched_run(const std::vector<std::string>& program, const std::filesystem::path& run_dir,
                              const std::filesystem::path& log_folder, const Environment& environment);

class LaunchFolder {
 public:
  // Notes what is in the run directory before the job begins.
  explicit LaunchFolder(LaunchedRun run);

  // Write what they are given, or silently nothing where they cannot. A job that was refused (64, 65) leaves
  // a run directory as it was, unless its logs were asked for or it had begun to run.
  void begin(const JobRecord& job);
  void end(const JobRecord& job, const std::vector<RankRecord>& ranks);  // those that are not there yet
  void end(const RankRecord& rank);

  bool has_recorded() const;  // since the job began
  std::optional<std::int64_t> free_bytes() const;

 private:
  struct State {
    std::int64_t run_json_ns = -1, recorder_ns = -1;  // of their last change
    bool operator==(const State&) const = default;
  };
  State state() const;
  bool make(bool failed, int exit_code) const;
  std::filesystem::path folder() const { return run_.folder / "launch"; }

  LaunchedRun run_;
  State before_;
};

}  // namespace farandole
