// Decides what follows the end of a job: whether it is started again (farandole run --max-restarts), and
// whether Slurm requeues it after it has saved a checkpoint (--requeue).
// Thread safety: none; use from one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "farandole/base/process/launch_environment.h"

namespace farandole {

// How a job ended.
struct JobEnd {
  int exit_code = 0;
  bool told = false;                                  // A signal told the launcher to end the job.
  std::filesystem::path run;                          // Run directory; empty: the launcher knows none.
  std::map<std::string, std::string> job_state = {};  // JobRecord::job_state
  bool complete = true;                               // Every rank has left a record of its end.
  bool unanswered = false;                            // LostHosts::unanswered
  std::chrono::nanoseconds lasted{};                  // From its start to its end.
  bool told_to_save = false;                          // SIGUSR1 came after the ranks had ended.
  bool recorded = false;                              // The ranks have recorded into the run directory.
};

class RestartPolicy {
 public:
  static constexpr std::chrono::minutes short_job{5};
  explicit RestartPolicy(int max_restarts) : max_restarts_(max_restarts) {}

  struct Decision {
    bool restart = false;
    bool diagnose = false;  // Show why the job failed.
    std::string message;    // For the user; empty if there is nothing to say.
  };
  // A job is not started again if it is done, was told to end, was refused because of a user's error or
  // of corrupt input, has saved for a requeue, or fails for the third time in a row with the same exit
  // code, the same newest checkpoint, and at the same step. Steps that follow each other count as the same,
  // because rank 0, which records the step, may be one step ahead of the rank that fails. A job that shows
  // no progress fails at step 0, unless it lasts longer than `short_job`: it may be a program whose progress
  // is not known.
  Decision decide(const JobEnd& end);
  int restarts() const { return restarts_; }  // so far

 private:
  struct Failure {
    int exit_code = 0;
    std::int64_t step = 0;
    std::filesystem::path checkpoint;  // Without its folder; empty if there is none.
    bool is_like(const Failure& other) const;
    std::string describe() const;
  };
  static std::optional<Failure> failure_of(const JobEnd& end);

  const int max_restarts_;
  int restarts_ = 0;
  std::optional<Failure> last_failure_;
  int same_failures_ = 0;
};

struct RequeueDecision {
  bool requeue = false;
  bool at_once = false;   // Slurm is about to kill this process.
  bool by_slurm = false;  // Slurm has requeued the job already.
  std::string message;    // For the user; empty if there is nothing to say.
};

// A job is requeued if it ended with ExitCode::preempted or not all of its hosts answer, Slurm has not
// started it `most` times again (SLURM_RESTART_COUNT), and nobody has cancelled it. A job that Slurm preempts
// or ends at its time limit is not cancelled.
RequeueDecision decide_requeue(const JobEnd& end, int most, const Environment& environment);

// Notes in RUN/launch/job.json that the job starts again.
void note_requeue(const JobEnd& end);

// Asks Slurm to requeue the job SLURM_JOB_ID, and notes this. Tries again for a minute while Slurm's
// controller does not answer. Slurm then kills this process. Prints a message if Slurm refuses.
void requeue(const JobEnd& end, const Environment& environment);

}  // namespace farandole
