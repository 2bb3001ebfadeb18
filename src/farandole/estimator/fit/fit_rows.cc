#include "farandole/estimator/fit/fit_rows.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <torch/utils.h>
#include <vector>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// Whether a column is not 0, for each row.
std::shared_ptr<std::vector<bool>> read_marks(const DataTable& table, std::size_t column) {
  auto marked = std::make_shared<std::vector<bool>>();
  TableReader reader(table, RowSelection(), {.columns = {column}, .batch = 65536, .shuffle = false});
  reader.start(0);
  while (const auto batch = reader.next()) {
    const auto size = table.columns()[column].row_bytes();
    for (std::size_t i = 0; i < batch->rows.size(); ++i)
      marked->push_back(std::ranges::any_of(std::span(*batch->columns[0]).subspan(i * size, size),
                                            [](std::byte byte) { return byte != std::byte{0}; }));
  }
  return marked;
}

}  // namespace

FitRows split_rows(const DataTable& table, const EstimatorOptions& options) {
  if (!options.validation_column.empty()) {
    const auto column = table.index_of(options.validation_column);
    if (!table.columns()[column].shape.empty())
      throw UserError(fmt::format(
          "column {} cannot choose the rows to validate on, because it has several values in a row",
          options.validation_column));
    const auto is_marked = [marked = read_marks(table, column)](std::int64_t row) {
      return (*marked)[static_cast<std::size_t>(row)];
    };
    return {RowSelection([is_marked](std::int64_t row) { return !is_marked(row); }), RowSelection(is_marked)};
  }
  if (options.validation == 0) return {RowSelection(), std::nullopt};
  auto parts =
      random_split(table.rows(), std::vector{1 - options.validation, options.validation}, options.seed);
  return {std::move(parts[0]), std::move(parts[1])};
}

void check_objective(Objective& objective, const DataTable& table, const EstimatorOptions& options,
                     int ranks) {
  objective.model().trained_parameters();
  const auto [training, validation] = split_rows(table, options);
  TableReader reader(table, training,
                     {.columns = objective.tensors().columns(), .batch = options.batch, .shuffle = false});
  if (reader.selected_rows() < ranks)
    throw UserError(fmt::format("{} has {} rows to train on for {} ranks; use fewer ranks or more rows",
                                table.source(), reader.selected_rows(), ranks));
  if (validation && validation->count(0, table.rows()) == 0)
    throw UserError(fmt::format("{} has no rows to validate on", table.source()));
  const torch::NoGradGuard no_grad;
  objective.model().train(false);  // The batch changes no statistics of normalization layers.
  reader.start(0);
  Scores scores(score_options(objective, options));
  scores.add(objective, reader, 1);
}

ScoreOptions score_options(const Objective& objective, const EstimatorOptions& options) {
  return {options.labels, objective.classifies(), options.metrics, options.metric_functions};
}

}  // namespace farandole
