// What --bucket-mb auto found, kept in the run directory as a profile. Used on rank 0.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/train/distributed_optimizer.h"
#include "farandole/trainer/train_options.h"

namespace farandole {

// Writes RUN/tuned-N-ranks.ini; returns a line that says what was found. Throws Error.
std::string keep_tuned_plan(const std::filesystem::path& run_dir, int ranks, const TunedPlan& plan);

// Where a run on so many ranks has found its plan already, takes it from there. Throws UserError for a file
// that is not as keep_tuned_plan() writes it.
void take_tuned_plan(TrainOptions& options, int ranks);

}  // namespace farandole
