#include "farandole/estimator/apply.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <optional>
#include <torch/utils.h>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/log.h"
#include "farandole/base/text/json.h"
#include "farandole/estimator/rows.h"
#include "farandole/estimator/scores.h"
#include "farandole/estimator/script_model.h"
#include "farandole/estimator/store.h"
#include "farandole/tables/formats.h"
#include "farandole/tables/table_writer.h"
#include "farandole/train/session_internals.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_in(const torch::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()), bytes_of(tensor)};
}

// Throws: UserError if `output` is one of the files of the table.
void refuse_own_file(const std::string& files, const fs::path& output) {
  for (std::size_t begin = 0; begin <= files.size();) {
    const auto end = std::min(files.find(',', begin), files.size());
    const auto word = files.substr(begin, end - begin);
    if (std::error_code ignored;
        fs::equivalent(word.substr(fs::exists(word) ? 0 : word.find('=') + 1), output, ignored))
      throw UserError(
          fmt::format("--output {} is a file of the table itself; choose another file", output.string()));
    begin = end + 1;
  }
}

// A model of the store and the table that it is applied to, on one rank.
class Transformation {
 public:
  Transformation(const fs::path& run, const std::string& files, const TransformOptions& options)
      : trained_(trained_options(run)),
        table_(open_table(files)),
        model_(run / "model.pt"),
        tensors_(*table_, trained_, /*with_labels=*/false) {
    model_.train(false);
    const auto examples = first_outputs();
    for (std::size_t label = 0; label < examples.size(); ++label)
      add_outputs(label, examples[label], options.argmax);
    if (options.argmax && std::find(predicted_.begin(), predicted_.end(), true) == predicted_.end())
      throw UserError(fmt::format(
          "{} returns one number for each row, so it predicts no class; leave out --argmax", model_.file()));
    std::size_t row_bytes = tensors_.row_bytes();
    for (const auto& column : columns_) row_bytes += column.row_bytes();
    batch_ = rows_per_pass(options.batch, row_bytes);
  }

  std::int64_t rows() const { return table_->rows(); }
  const std::vector<DataColumn>& columns() const { return columns_; }

  // Returns where in the file each column begins.
  std::vector<std::uint64_t> create(const std::string& files, const fs::path& file) const {
    const bool copies = fs::exists(files) && is_hdf5(files);
    if (!copies)
      for (const auto& name : table_->other_columns())
        log_warning("column {} of {} does not hold numbers and is left out", name, table_->source());
    return create_table_file(file, columns_, table_->rows(), copies ? files : "",
                             copies ? table_->other_columns() : std::vector<std::string>());
  }

  // Computes and writes the share of this rank.
  void write(const Session& session, const TableWriter& writer) {
    const torch::NoGradGuard no_grad;
    // The features first, then the other columns of the table.
    auto columns = tensors_.columns();
    const auto features = columns.size();
    for (std::size_t i = 0; i < table_->columns().size(); ++i)
      if (std::find(columns.begin(), columns.end(), i) == columns.end()) columns.push_back(i);
    TableReader reader(*table_, RowSelection(),
                       {.columns = columns,
                        .batch = batch_,
                        .shuffle = false,
                        .rank = session.rank(),
                        .world_size = session.size()});
    reader.start(0);
    while (auto batch = reader.next()) {
      const auto first = batch->rows.front();
      const auto rows = batch->rows.size();
      for (std::size_t i = 0; i < columns.size(); ++i) writer.write(columns[i], first, *batch->columns[i]);
      batch->columns.resize(features);
      write_outputs(writer, first, rows, outputs_of(*std::move(batch)));
    }
    writer.sync();
  }

 private:
  static EstimatorOptions trained_options(const fs::path& run) {
    auto options = options_from_json(find_fit(run.parent_path(), run.filename()).options);
    options.nan = "keep";  // Every row of the table stays.
    return options;
  }

  std::vector<torch::Tensor> outputs_of(TableBatch batch) {
    return model_.forward(tensors_.take(std::move(batch)).inputs, trained_.labels.size());
  }

  std::vector<torch::Tensor> first_outputs() {
    const torch::NoGradGuard no_grad;
    TableReader reader(*table_, RowSelection(),
                       {.columns = tensors_.columns(), .batch = 1, .shuffle = false});
    reader.start(0);
    auto batch = reader.next();
    if (!batch) throw UserError(table_->source() + " has no rows");
    return outputs_of(*std::move(batch));
  }

  void add_outputs(std::size_t label, const torch::Tensor& example, bool argmax) {
    if (example.dim() == 0 || example.size(0) != 1)
      throw UserError(fmt::format("{} does not return one output for each row", model_.file()));
    const auto& name = trained_.labels[label];
    auto shape = example.sizes().slice(1).vec();
    add_column({name + "__output", DType::float32, shape});
    // If there are several labels, only those that are classes have a prediction.
    const auto& loss = trained_.losses[trained_.losses.size() == 1 ? 0 : label];
    predicted_.push_back(argmax && !shape.empty() &&
                         (trained_.labels.size() == 1 || loss == "nll" || loss == "cross_entropy"));
    if (!predicted_.back()) return;
    shape.erase(shape.begin());
    add_column({name + "__prediction", DType::int64, shape});
  }

  void add_column(DataColumn column) {
    for (const auto& other : table_->columns())
      if (other.name == column.name)
        throw UserError(fmt::format("{} already has a column {}; transform a table without it",
                                    table_->source(), column.name));
    columns_.push_back(std::move(column));
  }

  void write_outputs(const TableWriter& writer, std::int64_t first, std::size_t rows,
                     const std::vector<torch::Tensor>& outputs) const {
    auto column = table_->columns().size();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto result = outputs[i].to(torch::kFloat32).contiguous();
      if (bytes_of(result) != rows * columns_[column].row_bytes())
        throw UserError(fmt::format(
            "{} returns outputs of shape [{}] for {} rows, and of shape [1, {}] for one", model_.file(),
            fmt::join(result.sizes(), ", "), rows, fmt::join(columns_[column].shape, ", ")));
      writer.write(column++, first, bytes_in(result));
      if (predicted_[i]) writer.write(column++, first, bytes_in(result.argmax(1).contiguous()));
    }
  }

  const EstimatorOptions trained_;
  std::shared_ptr<const DataTable> table_;
  ScriptModel model_;
  RowTensors tensors_;
  std::vector<DataColumn> columns_ = table_->columns();  // Columns of the output.
  std::vector<bool> predicted_;                          // For each label: whether it has a prediction.
  std::int64_t batch_ = 1;
};

}  // namespace

std::int64_t transform_on_rank(Session& session, const fs::path& own_run, const std::string& files,
                               const fs::path& output, const TransformOptions& options) {
  const auto run = run_of_rank_0(session, own_run);
  std::unique_ptr<Transformation> transformation;
  std::vector<std::uint64_t> offsets;
  std::optional<AtomicFile> file;  // of rank 0
  std::string place;
  session.together([&] {
    transformation = std::make_unique<Transformation>(run, files, options);
    if (session.rank() == 0) refuse_own_file(files, output);
  });
  session.together([&] {
    if (session.rank() != 0) return;
    place = file.emplace(output).temporary().string();
    offsets = transformation->create(files, place);
  });
  session.broadcast(place);
  offsets.resize(transformation->columns().size());
  session.internals().communicator().broadcast("offsets", offsets.data(), offsets.size() * sizeof offsets[0],
                                               0);
  session.together(
      [&] { transformation->write(session, TableWriter(place, transformation->columns(), offsets)); });
  session.together([&] {
    if (file) file->publish();
  });
  return transformation->rows();
}

Evaluation evaluate_on_rank(Session& session, const std::filesystem::path& own_run, const std::string& files,
                            const TransformOptions& options) {
  const auto run = run_of_rank_0(session, own_run);
  EstimatorOptions trained;
  std::shared_ptr<const DataTable> table;
  std::unique_ptr<ModelWithLosses> model;
  std::unique_ptr<Scores> scores;
  session.together([&] {
    trained = options_from_json(find_fit(run.parent_path(), run.filename()).options);
    table = open_table(files);
    model = std::make_unique<ModelWithLosses>(run / "model.pt", *table, trained);
    model->model().train(false);
    scores = std::make_unique<Scores>(ScoreOptions{trained.labels, model->classifies(), options.metrics,
                                                   options.metric_functions, /*all=*/true});
  });
  session.together([&] {
    const torch::NoGradGuard no_grad;
    const auto& tensors = model->tensors();
    TableReader reader(*table, RowSelection(),
                       {.columns = tensors.columns(),
                        .batch = rows_per_pass(options.batch, tensors.row_bytes()),
                        .shuffle = false,
                        .rank = session.rank(),
                        .world_size = session.size()});
    reader.start(0);
    scores->add(*model, reader);
  });
  return scores->reduce(session);
}

std::string evaluation_to_json(const Evaluation& evaluation) {
  Json json = {{"rows", evaluation.rows}, {"loss", evaluation.loss}};
  for (const auto& [name, value] : evaluation.metrics) json[name] = value;
  if (!evaluation.confusion.empty()) json["confusion"] = evaluation.confusion;
  return json_text(json);
}

Evaluation evaluation_from_json(const std::string& text) {
  const auto json = parse_json(text);
  Evaluation evaluation{json.at("rows"), number_from(json.at("loss")), {}, {}};
  for (const auto& [name, value] : json.items())
    if (name != "rows" && name != "loss" && !value.is_object()) evaluation.metrics[name] = number_from(value);
  if (json.contains("confusion")) evaluation.confusion = json["confusion"];
  return evaluation;
}

}  // namespace farandole
