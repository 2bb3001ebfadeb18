#include "farandole/estimator/rows.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <numeric>

#include "farandole/base/error.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {
namespace {

constexpr std::string_view whole_suffix = ":int64";

torch::Tensor column_tensor(const DataColumn& column, std::shared_ptr<Bytes> owner, std::size_t rows) {
  auto shape = column.shape;
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows));
  return torch::from_blob(
      owner->data(), shape, [owner](void*) {}, scalar_type_of(column.dtype));
}

}  // namespace

std::int64_t rows_per_pass(std::int64_t asked, std::size_t row_bytes) {
  constexpr std::size_t most_bytes = std::size_t{16} << 20;
  constexpr std::int64_t most_rows = 256;
  if (asked > 0) return asked;
  const auto fitting = static_cast<std::int64_t>(most_bytes / std::max<std::size_t>(row_bytes, 1));
  return std::clamp<std::int64_t>(fitting, 1, most_rows);
}

RowTensors::RowTensors(const DataTable& table, const EstimatorOptions& options, bool with_labels)
    : table_(table), options_(options), with_labels_(with_labels) {
  for (std::size_t i = 0; i < options.features.size(); ++i) {
    auto name = options.features[i];
    whole_.push_back(name.ends_with(whole_suffix));
    if (whole_.back()) name.resize(name.size() - whole_suffix.size());
    columns_.push_back(table.index_of(name));
    if (i >= options.input_shapes.size()) continue;
    const auto count = [](const std::vector<std::int64_t>& shape) {
      return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    };
    const auto& there = table.columns()[columns_.back()].shape;
    if (count(options.input_shapes[i]) != count(there))
      throw UserError(
          fmt::format("--input-shapes [{}] does not fit column {} of {}, whose rows have shape [{}]",
                      fmt::join(options.input_shapes[i], ","), name, table.source(), fmt::join(there, ",")));
  }
  if (!with_labels) return;
  for (const auto& label : options.labels) columns_.push_back(table.index_of(label));
  if (!options.sample_weight.empty()) columns_.push_back(table.index_of(options.sample_weight));
}

std::size_t RowTensors::row_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < whole_.size(); ++i) {
    const auto& column = table_.columns()[columns_[i]];
    bytes += column.row_bytes() / size_of(column.dtype) * size_of(whole_[i] ? DType::int64 : DType::float32);
  }
  return bytes;
}

Rows RowTensors::take(TableBatch batch) const {
  Rows rows;
  rows.numbers = std::move(batch.rows);
  std::vector<torch::Tensor> tensors;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    tensors.push_back(
        column_tensor(table_.columns()[columns_[c]], std::move(batch.columns[c]), rows.numbers.size()));
  torch::Tensor bad;  // Rows with a NaN.
  for (std::size_t i = 0; i < whole_.size(); ++i) {
    auto input = tensors[i].to(whole_[i] ? torch::kInt64 : torch::kFloat32);
    if (tensors[i].is_floating_point() && options_.nan != "keep" && input.numel() > 0) {
      const auto nan = input.isnan().reshape({rows.size(), -1}).any(1);
      if (nan.any().item<bool>()) {
        if (options_.nan == "error")
          throw CorruptInput(fmt::format(
              "{}: column {} has a NaN in row {}; correct the table, or leave out such rows with --nan skip",
              table_.source(), table_.columns()[columns_[i]].name,
              rows.numbers[static_cast<std::size_t>(nan.to(torch::kInt32).argmax().item<std::int64_t>())]));
        bad = bad.defined() ? bad.logical_or(nan) : nan;
      }
    }
    if (i < options_.input_shapes.size()) {
      auto shape = options_.input_shapes[i];
      shape.insert(shape.begin(), rows.size());
      input = input.reshape(shape);
    }
    rows.inputs.push_back(std::move(input));
  }
  if (with_labels_)
    for (std::size_t i = 0; i < options_.labels.size(); ++i)
      rows.labels.push_back(tensors[whole_.size() + i]);
  if (with_labels_ && !options_.sample_weight.empty())
    rows.weight = tensors.back().to(torch::kFloat32).reshape({rows.size()});
  if (bad.defined()) {
    const auto good = bad.logical_not().nonzero().flatten();
    for (auto& input : rows.inputs) input = input.index_select(0, good);
    for (auto& label : rows.labels) label = label.index_select(0, good);
    if (rows.weight.defined()) rows.weight = rows.weight.index_select(0, good);
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < good.numel(); ++i)
      numbers.push_back(rows.numbers[static_cast<std::size_t>(good[i].item<std::int64_t>())]);
    rows.numbers = std::move(numbers);
  }
  if (options_.transformation && rows.size() > 0) options_.transformation(rows.inputs);
  return rows;
}

void RowTensors::check_labels(const torch::Tensor& output, const Rows& rows, std::size_t label) const {
  if (output.dim() < 2 || rows.size() == 0) return;
  const auto per_row = rows.labels[label].reshape({rows.size(), -1}).to(torch::kFloat64);
  const auto wrong = (per_row < 0)
                         .logical_or(per_row >= static_cast<double>(output.size(1)))
                         .logical_or(per_row != per_row.floor());
  if (!wrong.any().item<bool>()) return;
  const auto row = wrong.any(1).to(torch::kInt32).argmax().item<std::int64_t>();
  const auto value = per_row[row].masked_select(wrong[row])[0].item<double>();
  throw CorruptInput(fmt::format(
      "{}: column {} has the label {:g} in row {}; the model has {} classes, so labels are 0 to {}",
      table_.source(), options_.labels[label], value, rows.numbers[static_cast<std::size_t>(row)],
      output.size(1), output.size(1) - 1));
}

}  // namespace farandole
