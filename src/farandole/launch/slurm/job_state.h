// What Slurm says about a job.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "farandole/base/process/launch_environment.h"

namespace farandole {

// Returns the job of this process as scontrol names it, "" outside of a job. For a task of a job array this
// is "<array>_<task>", because the number of one of the tasks is also that of the whole array.
std::string own_slurm_job(const Environment& environment);

// Returns the variables that describe the job and its limits, without "SLURM_"; empty outside of a job.
std::map<std::string, std::string> slurm_facts(const Environment& environment);

// The fields of `scontrol show job` that explain where a job is and why it ended. "EndUnix" is EndTime in
// seconds, interpreted in the time zone of this machine.
using JobState = std::map<std::string, std::string>;

JobState job_state_of(const std::string& scontrol_output);

struct JobAnswer {
  JobState state;     // Empty if Slurm does not know the job or does not answer in time.
  std::string text;   // What scontrol prints.
  bool gone = false;  // Slurm answers that it has no job of this number.
};

// Runs `scontrol show job`.
JobAnswer ask_for_job(const std::string& job, std::chrono::milliseconds patience);
JobState ask_for_job_state(const std::string& job, std::chrono::milliseconds patience);

// Asks Slurm about a job that ran earlier; `slurm` is JobRecord::slurm. The result is also empty if the job
// of this number is another one, because it belongs to another cluster or has another name: numbers start
// again if a cluster loses its state. A record without a name does not identify a job, so the result is then
// empty as well.
JobState ask_for_recorded_job(const std::map<std::string, std::string>& slurm,
                              std::chrono::milliseconds patience);

// True if the same cluster answers that it has no job of this number any more.
bool is_forgotten_job(const std::map<std::string, std::string>& slurm, std::chrono::milliseconds patience);

// How many times Slurm has started the job again. A job that was requeued has its next number at once.
int restarts_of(const JobState& state);

}  // namespace farandole
