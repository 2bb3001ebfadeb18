// Asks Slurm about a job, as long as Slurm remembers it.
// Thread safety: any thread may call this at any time.
#pragma once

#include <map>
#include <string>

#include "farandole/launch/job_record.h"

namespace farandole {

// Returns the fields of job_state_of(). The result is empty if the job was not a Slurm job, Slurm is not
// available, the job belongs to another cluster, or Slurm has forgotten it. This takes seconds if the
// controller does not answer.
std::map<std::string, std::string> ask_slurm(const JobRecord& job);

}  // namespace farandole
