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

Feature Feature::parse(const std::string& text) {
  Feature feature;
  std::string_view rest = text;
  feature.whole = rest.ends_with(whole_suffix);
  if (feature.whole) rest.remove_suffix(whole_suffix.size());
  feature.joined = rest.starts_with('[') && rest.ends_with(']');
  if (feature.joined) rest = rest.substr(1, rest.size() - 2);
  const auto add = [&](std::string_view name) {
    while (feature.joined && name.starts_with(' ')) name.remove_prefix(1);
    while (feature.joined && name.ends_with(' ')) name.remove_suffix(1);
    if (name.empty())
      throw UserError(
          fmt::format("--features: '{}' names no column; write for example x,y or \"[a,b,c]\",y", text));
    feature.columns.emplace_back(name);
  };
  if (!feature.joined && (rest.starts_with('[') || rest.ends_with(']')))
    throw UserError(fmt::format("--features: '{}' has one bracket; write for example \"[a,b,c]\",y", text));
  if (!feature.joined) add(rest);
  for (std::size_t begin = 0; feature.joined && begin <= rest.size();) {
    const auto end = std::min(rest.find(',', begin), rest.size());
    add(rest.substr(begin, end - begin));
    begin = end + 1;
  }
  return feature;
}

std::vector<std::string> columns_of(const ColumnOptions& options) {
  auto columns = options.labels;
  for (const auto& text : options.features) {
    const auto feature = Feature::parse(text);
    columns.insert(columns.end(), feature.columns.begin(), feature.columns.end());
  }
  if (!options.sample_weight.empty()) columns.push_back(options.sample_weight);
  return columns;
}

std::string SkippedRows::describe() const {
  return fmt::format(
      "{} of {} rows were left out because of a NaN (--nan skip), most of them because of column {} ({} row{})",
      rows, all, column, of_column, of_column == 1 ? "" : "s");
}

RowTensors::RowTensors(const DataTable& table, const ColumnOptions& options, bool with_labels)
    : table_(table), options_(options), with_labels_(with_labels) {
  for (std::size_t i = 0; i < options.features.size(); ++i) {
    const auto& feature = features_.emplace_back(Feature::parse(options.features[i]));
    std::int64_t numbers = 0;
    std::vector<std::int64_t> shape;
    for (const auto& name : feature.columns) {
      columns_.push_back(table.index_of(name));
      shape = table.columns()[columns_.back()].shape;
      numbers += std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    }
    if (feature.joined) shape = {numbers};
    if (i >= options.input_shapes.size()) continue;
    const auto& wanted = options.input_shapes[i];
    if (std::accumulate(wanted.begin(), wanted.end(), std::int64_t{1}, std::multiplies<>()) != numbers)
      throw UserError(fmt::format("--input-shapes [{}] does not fit {} {} of {}, whose rows have shape [{}]",
                                  fmt::join(wanted, ","), feature.joined ? "the columns" : "column",
                                  fmt::join(feature.columns, ","), table.source(), fmt::join(shape, ",")));
  }
  feature_columns_ = columns_.size();
  if (with_labels) {
    for (const auto& label : options.labels) columns_.push_back(table.index_of(label));
    if (!options.sample_weight.empty()) columns_.push_back(table.index_of(options.sample_weight));
  }
  skipped_.assign(2 + columns_.size(), 0);
}

std::size_t RowTensors::row_bytes() const {
  std::size_t bytes = 0, place = 0;
  for (const auto& feature : features_)
    for (std::size_t i = 0; i < feature.columns.size(); ++i) {
      const auto& column = table_.columns()[columns_[place++]];
      bytes +=
          column.row_bytes() / size_of(column.dtype) * size_of(feature.whole ? DType::int64 : DType::float32);
    }
  return bytes;
}

torch::Tensor RowTensors::input(const Feature& feature, std::span<const torch::Tensor> columns) const {
  const auto type = feature.whole ? torch::kInt64 : torch::kFloat32;
  if (!feature.joined) return columns.front().to(type);
  std::vector<torch::Tensor> parts;
  for (const auto& column : columns) parts.push_back(column.reshape({column.size(0), -1}).to(type));
  return torch::cat(parts, 1);
}

// Which rows have a NaN in this column; undefined if there is none or NaN are kept.
torch::Tensor RowTensors::rows_with_nan(const torch::Tensor& values, std::size_t column, const Rows& rows) {
  if (!values.is_floating_point() || options_.nan == "keep" || values.numel() == 0) return {};
  auto nan = values.isnan().reshape({rows.size(), -1}).any(1);
  const auto count = nan.sum().item<std::int64_t>();
  if (count == 0) return {};
  if (options_.nan == "error")
    throw CorruptInput(fmt::format(
        "{}: column {} has a NaN in row {}; correct the table or take such rows out of it. `farandole fit --nan skip` "
        "leaves them out, also when its model is evaluated",
        table_.source(), table_.columns()[columns_[column]].name,
        rows.numbers[static_cast<std::size_t>(nan.to(torch::kInt32).argmax().item<std::int64_t>())]));
  skipped_[2 + column] += count;
  return nan;
}

Rows RowTensors::take(TableBatch batch) {
  Rows rows;
  rows.numbers = std::move(batch.rows);
  std::vector<torch::Tensor> tensors;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    tensors.push_back(
        column_tensor(table_.columns()[columns_[c]], std::move(batch.columns[c]), rows.numbers.size()));
  torch::Tensor bad;  // Rows with a NaN.
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (const auto nan = rows_with_nan(tensors[i], i, rows); nan.defined())
      bad = bad.defined() ? bad.logical_or(nan) : nan;
  std::size_t place = 0;
  for (std::size_t i = 0; i < features_.size(); ++i) {
    const auto columns = features_[i].columns.size();
    auto input = this->input(features_[i], std::span(tensors).subspan(place, columns));
    place += columns;
    if (i < options_.input_shapes.size()) {
      auto shape = options_.input_shapes[i];
      shape.insert(shape.begin(), rows.size());
      input = input.reshape(shape);
    }
    rows.inputs.push_back(std::move(input));
  }
  if (with_labels_)
    for (std::size_t i = 0; i < options_.labels.size(); ++i)
      rows.labels.push_back(tensors[feature_columns_ + i]);
  if (with_labels_ && !options_.sample_weight.empty())
    rows.weight = tensors.back().to(torch::kFloat32).reshape({rows.size()});
  skipped_[1] += rows.size();
  if (bad.defined()) {
    const auto good = bad.logical_not().nonzero().flatten();
    skipped_[0] += rows.size() - good.numel();
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

SkippedRows RowTensors::take_skipped(Session& session) {
  auto counts = torch::tensor(skipped_, torch::kInt64);
  session.allreduce_(counts, ReduceOp::sum);
  forget_skipped();
  const auto* first = counts.data_ptr<std::int64_t>();
  const auto* most = std::max_element(first + 2, first + counts.numel());
  const auto column = static_cast<std::size_t>(most - first - 2);
  return {first[0], first[1], table_.columns()[columns_[column]].name, *most};
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
