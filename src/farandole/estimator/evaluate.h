// Measures a trained model on a table, on the ranks of a job.
// Thread safety: call from the training thread only.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/estimator/estimator.h"

namespace farandole {

// Each rank measures an equal share of the rows, batch by batch.
// Throws: UserError and CorruptInput if model and table do not fit together.
// Collective: every rank of the job must call this in the same order.
Evaluation evaluate_on_rank(Session& session, const std::filesystem::path& run, const std::string& table,
                            const TransformOptions& options);

std::string evaluation_to_json(const Evaluation& evaluation);
Evaluation evaluation_from_json(const std::string& text);

}  // namespace farandole
