// One start of a job: runs srun or mpirun, passes on output and signals, keeps the records.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>

#include "farandole/launch/launch_plan.h"
#include "farandole/launch/records/launch_folder.h"
#include "farandole/launch/restart_policy.h"

namespace farandole {

// Returns when all processes of the job have ended. Changes the signal mask of the process.
// Throws: Error if the job cannot be started.
JobEnd run_job(const LaunchRequest& request, const LaunchPlan& plan, const std::filesystem::path& log_folder,
               const LaunchedRun& run);

}  // namespace farandole
