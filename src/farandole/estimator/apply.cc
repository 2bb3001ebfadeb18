#include "farandole/estimator/apply.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <numeric>
#include <torch/utils.h>

#include <nlohmann/json.hpp>

#include "farandole/base/atomic_file.h"
#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/estimator/objective.h"
#include "farandole/estimator/scores.h"
#include "farandole/estimator/store.h"
#include "farandole/tables/formats.h"
#include "farandole/tables/table_writer.h"
#include "farandole/train/internals.h"
#include "farandole/train/optimizer/tensor_bytes.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

TableReaderOptions reader_options(Session& session, std::vector<std::size_t> columns, std::int64_t batch) {
  return {.columns = std::move(columns),
          .batch = batch,
          .shuffle = false,
          .rank = session.rank(),
          .world_size = session.size()};
}

// A model of the store and a table, on one rank.
struct Applied {
  EstimatorOptions options;
  std::shared_ptr<const DataTable> table;
  std::unique_ptr<ScriptModel> model;

  Applied(const fs::path& run, const std::string& files)
      : options(options_from_json(find_fit(run.parent_path(), run.filename()).options)),
        table(open_table(files)),
        model(std::make_unique<ScriptModel>(run / "model.pt")) {
    model->train(false);
  }
};

std::vector<torch::Tensor> first_outputs(Applied& applied, const RowTensors& tensors) {
  const torch::NoGradGuard no_grad;
  TableReader reader(*applied.table, RowSelection(applied.table->rows()),
                     {.columns = tensors.columns(), .batch = 1, .shuffle = false});
  reader.start(0);
  auto batch = reader.next();
  if (!batch) throw UserError(applied.table->source() + " has no rows");
  return applied.model->forward(tensors.take(*std::move(batch)).inputs, applied.options.labels.size());
}

std::span<const std::byte> bytes_in(const torch::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()), bytes_of(tensor)};
}

}  // namespace

std::int64_t transform_on_rank(Session& session, const fs::path& run, const std::string& files,
                               const fs::path& output, const TransformOptions& options) {
  std::unique_ptr<Applied> applied;
  std::unique_ptr<RowTensors> tensors;
  std::vector<DataColumn> columns;
  std::vector<bool> predicted;  // For each label: whether it has a prediction.
  std::vector<std::uint64_t> offsets;
  fs::path temporary;
  std::string place;
  session.together([&] {
    applied = std::make_unique<Applied>(run, files);
    applied->options.nan = "keep";  // Every row of the table stays.
    tensors = std::make_unique<RowTensors>(*applied->table, applied->options, false);
    columns = applied->table->columns();
    const auto& labels = applied->options.labels;
    const auto examples = first_outputs(*applied, *tensors);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto& example = examples[i];
      if (example.dim() == 0 || example.size(0) != 1)
        throw UserError(fmt::format("{} does not return one output for each row", applied->model->file()));
      auto shape = example.sizes().slice(1).vec();
      columns.push_back({labels[i] + "__output", DType::float32, shape});
      // Of several labels, only those that are classes have a prediction.
      const auto& loss = applied->options.losses[applied->options.losses.size() == 1 ? 0 : i];
      predicted.push_back(options.argmax && !shape.empty() &&
                          (labels.size() == 1 || loss == "nll" || loss == "cross_entropy"));
      if (!predicted.back()) continue;
      shape.erase(shape.begin());
      columns.push_back({labels[i] + "__prediction", DType::int64, shape});
    }
    if (options.argmax && std::find(predicted.begin(), predicted.end(), true) == predicted.end())
      throw UserError(fmt::format("{} returns one number for each row, of which there is no --argmax",
                                  applied->model->file()));
    for (std::size_t i = applied->table->columns().size(); i < columns.size(); ++i)
      for (const auto& column : applied->table->columns())
        if (column.name == columns[i].name)
          throw UserError(fmt::format("{} already has a column {}; transform a table without it",
                                      applied->table->source(), column.name));
    if (session.rank() != 0) return;
    for (std::size_t begin = 0; begin <= files.size();) {
      const auto end = std::min(files.find(',', begin), files.size());
      const auto word = files.substr(begin, end - begin);
      if (std::error_code ignored;
          fs::equivalent(word.substr(fs::exists(word) ? 0 : word.find('=') + 1), output, ignored))
        throw UserError(
            fmt::format("--output {} is a file of the table itself; choose another file", output.string()));
      begin = end + 1;
    }
    temporary = temporary_beside(output);
    const bool copies = is_hdf5_table(files);
    if (!copies)
      for (const auto& name : applied->table->other_columns())
        spdlog::warn("column {} of {} does not hold numbers and is left out", name, applied->table->source());
    offsets = create_table_file(temporary, columns, applied->table->rows(), copies ? files : "",
                                copies ? applied->table->other_columns() : std::vector<std::string>());
    place = temporary.string();
  });
  session.broadcast(place);
  offsets.resize(columns.size());
  session.internals().communicator().broadcast("offsets", offsets.data(), offsets.size() * sizeof offsets[0],
                                               0);
  try {
    session.together([&] {
      const torch::NoGradGuard no_grad;
      const TableWriter writer(place, columns, offsets);
      // The features first, then all columns of the table.
      auto all = tensors->columns();
      const auto features = all.size();
      for (std::size_t i = 0; i < applied->table->columns().size(); ++i) all.push_back(i);
      TableReader reader(*applied->table, RowSelection(applied->table->rows()),
                         reader_options(session, all, options.batch));
      reader.start(0);
      while (auto batch = reader.next()) {
        const auto first = batch->rows.front();
        for (std::size_t i = features; i < all.size(); ++i)
          writer.write(i - features, first, *batch->columns[i]);
        batch->columns.resize(features);
        const auto outputs =
            applied->model->forward(tensors->take(*std::move(batch)).inputs, predicted.size());
        auto column = applied->table->columns().size();
        for (std::size_t i = 0; i < outputs.size(); ++i) {
          const auto result = outputs[i].to(torch::kFloat32).contiguous();
          writer.write(column++, first, bytes_in(result));
          if (predicted[i]) writer.write(column++, first, bytes_in(result.argmax(1).contiguous()));
        }
      }
      writer.sync();
    });
    session.together([&] {
      if (session.rank() == 0) publish_file(temporary, output);
    });
  } catch (...) {
    if (session.rank() == 0) discard_file(temporary, output);
    throw;
  }
  return applied->table->rows();
}

Evaluation evaluate_on_rank(Session& session, const fs::path& run, const std::string& files,
                            const TransformOptions& options) {
  EstimatorOptions trained;
  std::shared_ptr<const DataTable> table;
  std::unique_ptr<Objective> objective;
  std::unique_ptr<Scores> scores;
  session.together([&] {
    trained = options_from_json(find_fit(run.parent_path(), run.filename()).options);
    table = open_table(files);
    objective = std::make_unique<Objective>(run / "model.pt", *table, trained);
    objective->model().train(false);
    scores = std::make_unique<Scores>(ScoreOptions{trained.labels, objective->classifies(), options.metrics,
                                                   options.metric_functions, /*all=*/true});
  });
  session.together([&] {
    const torch::NoGradGuard no_grad;
    TableReader reader(*table, RowSelection(table->rows()),
                       reader_options(session, objective->tensors().columns(), options.batch));
    reader.start(0);
    while (auto batch = reader.next()) {
      const auto rows = objective->tensors().take(*std::move(batch));
      if (rows.size() > 0) scores->add(objective->of(rows), rows);
    }
  });
  return scores->reduce(session);
}

std::string evaluation_to_json(const Evaluation& evaluation) {
  nlohmann::ordered_json json = {{"rows", evaluation.rows}, {"loss", evaluation.loss}};
  for (const auto& [name, value] : evaluation.metrics) json[name] = value;
  if (!evaluation.confusion.empty()) json["confusion"] = evaluation.confusion;
  return json.dump();
}

Evaluation evaluation_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Evaluation evaluation{json.at("rows"), json.at("loss"), {}, {}};
  for (const auto& [name, value] : json.items())
    if (name != "rows" && name != "loss" && value.is_number()) evaluation.metrics[name] = value;
  if (json.contains("confusion")) evaluation.confusion = json["confusion"];
  return evaluation;
}

}  // namespace farandole
