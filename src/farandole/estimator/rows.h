// The columns of a table as the tensors of a model.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <span>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/estimator/estimator.h"
#include "farandole/tables/table_reader.h"

namespace farandole {

struct Rows {
  std::vector<torch::Tensor> inputs;
  std::vector<torch::Tensor> labels;  // As the options' labels; empty if they were not asked for.
  torch::Tensor weight;               // Undefined if there is none.
  std::vector<std::int64_t> numbers;  // In the table.

  std::int64_t size() const { return static_cast<std::int64_t>(numbers.size()); }
};

// One input of the model.
struct Feature {
  std::vector<std::string> columns;
  bool joined = false;  // The numbers of these columns are one vector. Otherwise there is one column.
  bool whole = false;   // It stays int64.

  // Parses NAME, NAME:int64, [NAME,NAME,…] and [NAME,NAME,…]:int64.
  // Throws: UserError if the text is none of these.
  static Feature parse(const std::string& text);
};

// The columns of the table that these options name.
std::vector<std::string> columns_of(const ColumnOptions& options);

// The rows that were left out because of a NaN.
struct SkippedRows {
  std::int64_t rows = 0, all = 0;  // All: those with them.
  std::string column;              // The column with most of the NaN, by rows.
  std::int64_t of_column = 0;
  std::string describe() const;
};

// Number of rows per forward pass without backward. For 0, chooses as many rows as fit into a small amount of
// memory, of which one row needs `row_bytes`.
std::int64_t rows_per_pass(std::int64_t asked, std::size_t row_bytes);

class RowTensors {
 public:
  // Throws: UserError if a column does not exist or its shape does not fit.
  RowTensors(const DataTable& table, const ColumnOptions& options, bool with_labels);

  const std::vector<std::size_t>& columns() const { return columns_; }
  std::size_t row_bytes() const;  // Size of the inputs of one row, as the model sees them.
  // Throws: CorruptInput that names the row and the column of a NaN, if options.nan says so.
  Rows take(TableBatch batch);
  // What take() has left out on all ranks, since the last such call.
  // Collective: every rank of the job must call this in the same order.
  SkippedRows take_skipped(Session& session);
  void forget_skipped() { skipped_.assign(skipped_.size(), 0); }
  // Throws: CorruptInput that names the row whose label number `label` is not one of the classes
  // of the outputs.
  void check_labels(const torch::Tensor& output, const Rows& rows, std::size_t label) const;

 private:
  const DataTable& table_;
  const ColumnOptions& options_;
  torch::Tensor input(const Feature& feature, std::span<const torch::Tensor> columns) const;
  torch::Tensor rows_with_nan(const torch::Tensor& values, std::size_t column, const Rows& rows);

  std::vector<Feature> features_;
  std::vector<std::size_t> columns_;  // Of the features, the labels and the weight.
  std::size_t feature_columns_ = 0;
  bool with_labels_;
  std::vector<std::int64_t> skipped_;  // Rows, all rows, and rows with a NaN in each column.
};

}  // namespace farandole
