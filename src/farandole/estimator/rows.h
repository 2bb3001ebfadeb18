// The columns of a table as the tensors of a model.
// Thread safety: none; use from one thread at a time.
#pragma once

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

// Number of rows per forward pass without backward. For 0, chooses as many rows as fit into a small amount of
// memory, of which one row needs `row_bytes`.
std::int64_t rows_per_pass(std::int64_t asked, std::size_t row_bytes);

class RowTensors {
 public:
  // Throws: UserError if a column does not exist or its shape does not fit.
  RowTensors(const DataTable& table, const EstimatorOptions& options, bool with_labels);

  const std::vector<std::size_t>& columns() const { return columns_; }
  std::size_t row_bytes() const;  // Size of the inputs of one row, as the model sees them.
  // Throws: CorruptInput that names the row and the column of a NaN, if options.nan says so.
  Rows take(TableBatch batch) const;
  // Throws: CorruptInput that names the row whose label number `label` is not one of the classes
  // of the outputs.
  void check_labels(const torch::Tensor& output, const Rows& rows, std::size_t label) const;

 private:
  const DataTable& table_;
  const EstimatorOptions& options_;
  std::vector<std::size_t> columns_;
  std::vector<bool> whole_;  // Features that stay int64.
  bool with_labels_;
};

}  // namespace farandole
