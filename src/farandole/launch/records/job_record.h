// The launcher's record of a job: how it was started and how it ended. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace farandole {

// JobRecord::starter if farandole run itself has started the supervisors.
inline constexpr const char* own_starter = "farandole run";

struct JobRecord {
  struct Signal {
    int number = 0;
    std::int64_t time_ns = 0;
  };

  std::string launch;  // Name of this start in the run directory; the ranks' records contain it too.
  int ranks = 0;
  std::string starter;  // mpirun, srun or own_starter
  std::string host;     // Host of the launcher.
  std::int64_t pid = 0;
  std::string version;               // Version of the launcher.
  std::vector<std::string> program;  // Program and its arguments.
  std::string folder;                // Working directory at the start.
  // Variables of the Slurm job, without "SLURM_"; empty outside Slurm.
  std::map<std::string, std::string> slurm;
  std::int64_t start_ns = 0;     // CLOCK_REALTIME
  std::int64_t end_ns = 0;       // 0: the job is running, or the launcher was killed.
  std::int64_t requeued_ns = 0;  // When this process had Slurm requeue the job; 0: it did not.
  int exit_code = 0;             // Valid only after the end.
  std::string message;           // The message that the launcher printed.
  std::string starter_said;      // What srun or mpirun said, at most 8 KiB.
  int starter_signal = 0;  // Signal that killed srun or mpirun, unless the launcher sent it; 0: it exited.
  std::vector<Signal> signals;                   // The first signals that the launcher received.
  std::map<std::string, std::string> job_state;  // What Slurm reported after a failure: JobState, Reason.
  std::optional<std::int64_t> free_bytes;        // Free space of the run directory's file system at the end.
};

// The record of a job that this process starts now.
JobRecord record_start(int ranks, const std::string& starter, const std::vector<std::string>& program);
// Sets JobRecord::job_state if it is a Slurm job.
void ask_for_state(JobRecord& job);

// Writes the whole file or nothing. Returns false if the file cannot be written.
bool write_job(const std::filesystem::path& file, const JobRecord& job);
// Returns nullopt if the file does not exist.
// Throws: CorruptInput if the file is not a job record; Error if it cannot be read.
std::optional<JobRecord> read_job(const std::filesystem::path& file);

}  // namespace farandole
