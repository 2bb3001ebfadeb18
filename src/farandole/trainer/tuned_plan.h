// Stores the result of --bucket-mb auto in the run directory as a profile. Used on rank 0.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/train/distributed_optimizer.h"
#include "farandole/trainer/train_options.h"

namespace farandole {

// Writes RUN/tuned-N-ranks.ini and returns a line that describes the result.
// Throws: Error if the file cannot be written.
std::string keep_tuned_plan(const std::filesystem::path& run_dir, int ranks, const TunedPlan& plan);

// If an earlier run with the same number of ranks has stored its plan, this call uses that plan.
// Throws: UserError if the file does not have the format of keep_tuned_plan().
void take_tuned_plan(TrainOptions& options, int ranks);

}  // namespace farandole
