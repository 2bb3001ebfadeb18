// What the launcher knows of a job: how it was started and how it ended. Plain values; reading and writing
// are usable from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/launch_environment.h"

namespace farandole {

struct JobRecord {
  struct Signal {
    int number = 0;
    std::int64_t time_ns = 0;
  };

  std::string launch;  // names this start among those of a run directory; its ranks' records have it, too
  int ranks = 0;
  std::string starter;  // mpirun or srun
  std::string host;     // of the launcher
  std::int64_t pid = 0;
  std::string version;                       // of the launcher
  std::vector<std::string> program;          // and its arguments
  std::string folder;                        // where it was started
  std::map<std::string, std::string> slurm;  // variables of the job, without "SLURM_"; empty outside of one
  std::int64_t start_ns = 0;                 // CLOCK_REALTIME
  std::int64_t end_ns = 0;                   // 0: it runs, or the launcher was killed
  int exit_code = 0;                         // meaningless before the end
  std::string message;                       // the launcher's own
  std::string starter_said;                  // what the starter said of the end
  std::vector<Signal> signals;               // that the launcher got, the first few
  std::map<std::string, std::string> job_state;  // what Slurm said of the job at a failure: JobState, Reason
  std::optional<std::int64_t> free_bytes;        // of the run directory's file system, at the end
};

// The variables that tell a job's limits.
std::map<std::string, std::string> slurm_facts(const Environment& environment);
// The fields of `scontrol show job` that tell why a job ended; "EndUnix" is EndTime in seconds, as this
// machine's zone has it.
std::map<std::string, std::string> job_state_of(const std::string& scontrol_output);

// Returns false where it cannot be written; whole or not at all.
bool write_job(const std::filesystem::path& file, const JobRecord& job);
// Nothing where there is no such file; throws CorruptInput where it is none of ours.
std::optional<JobRecord> read_job(const std::filesystem::path& file);

}  // namespace farandole
