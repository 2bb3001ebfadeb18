// Applies a trained model to a table, or measures it, on the ranks of a job.
// Thread safety: call from the training thread only.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/estimator/estimator.h"
#include "farandole/tables/table_export.h"

namespace farandole {

// Throws: UserError if a transformation cannot write such a file.
TableFormat format_of_transform(const std::filesystem::path& output);

// Each rank computes and writes an equal share of the rows, batch by batch: the table may be larger than
// memory. Returns the number of rows of the table.
// Throws: UserError and CorruptInput if model and table do not fit together.
// Collective: every rank of the job must call this in the same order.
std::int64_t transform_on_rank(Session& session, const std::filesystem::path& run, const std::string& table,
                               const std::filesystem::path& output, const TransformOptions& options);

// Each rank measures an equal share of the rows, batch by batch.
// Throws: UserError and CorruptInput if model and table do not fit together.
// Collective: every rank of the job must call this in the same order.
Evaluation evaluate_on_rank(Session& session, const std::filesystem::path& run, const std::string& table,
                            const TransformOptions& options);

std::string evaluation_to_json(const Evaluation& evaluation);
Evaluation evaluation_from_json(const std::string& text);

}  // namespace farandole
