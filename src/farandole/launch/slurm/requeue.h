// Requeues the Slurm job of this process after it has saved a checkpoint (farandole run --requeue).
// Thread safety: none; use from one thread at a time.
#pragma once

#include <string>

#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/restart_policy.h"

namespace farandole {

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
