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
#include "farandole/estimator/loss.h"
#include "farandole/estimator/rows.h"
#include "farandole/estimator/scores.h"
#include "farandole/estimator/script_model.h"
#include "farandole/estimator/store.h"
#include "farandole/tables/formats.h"
#include "farandole/tables/table_writer.h"
#include "farandole/train/internals.h"
#include "farandole/train/optimizer/tensor_bytes.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

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
  TableReaderOptions reader_options(Session& session, std::vector<std::size_t> columns,
                                    std::int64_t batch) const {
    return {.columns = std::move(columns),
            .batch = batch,
            .shuffle = false,
            .rank = session.rank(),
            .world_size = session.size()};
  }
};

torch::Tensor first_output(Applied& applied, const RowTensors& tensors) {
  const torch::NoGradGuard no_grad;
  TableReader reader(*applied.table, RowSelection(applied.table->rows()),
                     {.columns = tensors.columns(), .batch = 1, .shuffle = false});
  reader.start(0);
  auto batch = reader.next();
  if (!batch) throw UserError(applied.table->source() + " has no rows");
  return applied.model->forward(tensors.take(*std::move(batch)).inputs);
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
  std::vector<std::uint64_t> offsets;
  fs::path temporary;
  std::string place;
  session.together([&] {
    applied = std::make_unique<Applied>(run, files);
    applied->options.nan = "keep";  // Every row of the table stays.
    tensors = std::make_unique<RowTensors>(*applied->table, applied->options, false);
    const auto example = first_output(*applied, *tensors);
    if (example.dim() == 0 || example.size(0) != 1)
      throw UserError(fmt::format("{} does not return one output for each row", applied->model->file()));
    if (options.argmax && example.dim() < 2)
      throw UserError(fmt::format("{} returns one number for each row, of which there is no --argmax",
                                  applied->model->file()));
    columns = applied->table->columns();
    columns.push_back({applied->options.label + "__output", DType::float32, example.sizes().slice(1).vec()});
    if (options.argmax) {
      auto shape = example.sizes().slice(1).vec();
      shape.erase(shape.begin());
      columns.push_back({applied->options.label + "__prediction", DType::int64, shape});
    }
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
                         applied->reader_options(session, all, options.batch));
      reader.start(0);
      while (auto batch = reader.next()) {
        const auto first = batch->rows.front();
        for (std::size_t i = features; i < all.size(); ++i)
          writer.write(i - features, first, *batch->columns[i]);
        batch->columns.resize(features);
        const auto result =
            applied->model->forward(tensors->take(*std::move(batch)).inputs).to(torch::kFloat32).contiguous();
        writer.write(applied->table->columns().size(), first, bytes_in(result));
        if (options.argmax) writer.write(columns.size() - 1, first, bytes_in(result.argmax(1).contiguous()));
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
  std::unique_ptr<Applied> applied;
  std::unique_ptr<RowTensors> tensors;
  std::unique_ptr<LossFunction> loss;
  std::unique_ptr<Scores> scores;
  session.together([&] {
    applied = std::make_unique<Applied>(run, files);
    tensors = std::make_unique<RowTensors>(*applied->table, applied->options, true);
    loss = std::make_unique<LossFunction>(applied->options.loss);
    scores = std::make_unique<Scores>(loss->classifies());
  });
  session.together([&] {
    const torch::NoGradGuard no_grad;
    TableReader reader(*applied->table, RowSelection(applied->table->rows()),
                       applied->reader_options(session, tensors->columns(), options.batch));
    reader.start(0);
    while (auto batch = reader.next()) {
      const auto rows = tensors->take(*std::move(batch));
      if (rows.size() == 0) continue;
      const auto output = applied->model->forward(rows.inputs);
      if (loss->classifies()) tensors->check_labels(output, rows);
      const auto label = loss->labels(rows.label, output);
      const auto values = loss->of_rows(output, label);
      scores->add(
          output, label,
          (values.dim() == 0 ? values * static_cast<double>(rows.size()) : values.sum()).item<double>());
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
