// What Slurm says of a job, asked while it remembers it. Usable from any thread.
#pragma once

#include <map>
#include <string>

#include "farandole/launch/job_record.h"

namespace farandole {

// As job_state_of() gives it; empty where the job was none of Slurm's, Slurm is not at hand, it is another
// cluster's or has forgotten the job. Takes seconds where a controller does not answer.
std::map<std::string, std::string> ask_slurm(const JobRecord& job);

}  // namespace farandole
