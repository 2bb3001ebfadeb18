// RUN/submitted.json: the newest job that `farandole submit` has made for a run directory. Its launcher
// writes RUN/launch/job.json when Slurm starts it.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "farandole/launch/slurm/job_state.h"

namespace farandole {

// Throws: Error if the file cannot be written.
void record_submission(const std::filesystem::path& run_dir, const std::string& job);

// The number of that job; "" if there is none.
std::string submitted_job(const std::filesystem::path& run_dir);

// Asks Slurm about it. The result is empty if Slurm does not know a job of this number with this script.
JobState ask_for_submitted_job(const std::filesystem::path& run_dir, const std::string& job,
                               std::chrono::milliseconds patience);

}  // namespace farandole
