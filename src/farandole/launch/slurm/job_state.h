// What Slurm says about a job.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace farandole {

// The fields of `scontrol show job` that explain where a job is and why it ended. "EndUnix" is EndTime in seconds,
// interpreted in the time zone of this machine.
using JobState = std::map<std::string, std::string>;

JobState job_state_of(const std::string& scontrol_output);

// Runs `scontrol show job`. The result is empty if Slurm does not know the job or does not answer in time.
JobState ask_for_job_state(const std::string& job, std::chrono::milliseconds patience);

// How many times Slurm has started the job again. A job that was requeued has its next number at once.
int restarts_of(const JobState& state);

}  // namespace farandole
