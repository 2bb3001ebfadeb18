// Which rows of a table a fit trains on and validates on, and whether model, loss and rows fit together.
// Thread safety: call from the training thread only.
#pragma once

#include <optional>

#include "farandole/estimator/model/objective.h"
#include "farandole/estimator/model/scores.h"
#include "farandole/tables/table_reader.h"

namespace farandole {

struct FitRows {
  RowSelection training;
  std::optional<RowSelection> validation;
};

// Throws: UserError if the column of the options cannot choose the rows.
FitRows split_rows(const DataTable& table, const EstimatorOptions& options);

// Throws: UserError and CorruptInput if model, loss, table and options do not fit together, as far as the
// first rows can tell.
void check_objective(Objective& objective, const DataTable& table, const EstimatorOptions& options,
                     int ranks);

// What a fit measures in each epoch.
ScoreOptions score_options(const Objective& objective, const EstimatorOptions& options);

}  // namespace farandole
