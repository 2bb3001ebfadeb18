#include "farandole/estimator/apply.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <optional>
#include <torch/utils.h>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/log.h"
#include "farandole/base/text/json.h"
#include "farandole/estimator/models/model.h"
#include "farandole/estimator/rows.h"
#include "farandole/estimator/scores.h"
#include "farandole/estimator/store.h"
#include "farandole/tables/formats.h"
#include "farandole/tables/table_export.h"
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
  Transformation(const fs::path& run, const std::string& files, const TransformOptions& options,
                 TableFormat format, torch::Device device)
      : record_(find_fit(run.parent_path(), run.filename())),
        trained_(trained_options(record_)),
        table_(open_table(files, columns_of(features_of(trained_)), OtherColumns::kept)),
        names_texts_(format == TableFormat::hdf5),
        device_(device),
        model_(load_published_model(run, device)),
        tensors_(*table_, trained_, /*with_labels=*/false) {
    model_->train(false);
    const auto examples = first_outputs();
    for (std::size_t label = 0; label < examples.size(); ++label)
      add_outputs(label, examples[label], options.argmax);
    if (options.argmax && std::find(predicted_.begin(), predicted_.end(), true) == predicted_.end())
      throw UserError(fmt::format(
          "{} returns one number for each row, so it predicts no class; leave out --argmax", model_->file()));
    std::size_t row_bytes = tensors_.row_bytes();
    for (const auto& column : columns_) row_bytes += column.row_bytes();
    batch_ = rows_per_pass(options.batch, row_bytes);
  }

  std::int64_t rows() const { return table_->rows(); }
  const std::vector<DataColumn>& columns() const { return columns_; }

  // The names of the classes whose numbers predictions are.
  const ClassNames& predicted_classes() const { return predicted_classes_; }

  // Returns where in the file each column begins. Columns that are no numbers are written now.
  std::vector<std::uint64_t> create(const std::string& files, const fs::path& file) const {
    for (const auto& warning : table_->warnings()) log_warning("{}", warning);
    warn_of_unusable_columns(*table_);
    if (fs::exists(files) && is_hdf5(files))
      return create_table_file(file, columns_, table_->rows(), files, table_->other_columns());
    auto columns = columns_;
    for (const auto& name : table_->other_columns())
      if (const auto longest = longest_text(name)) columns.push_back({name, DType::uint8, {*longest}, true});
    const auto offsets = create_table_file(file, columns, table_->rows());
    const TableWriter writer(file, columns, offsets);
    for (auto i = columns_.size(); i < columns.size(); ++i) write_texts(writer, i, columns[i]);
    return {offsets.begin(), offsets.begin() + static_cast<std::ptrdiff_t>(columns_.size())};
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
  static ColumnOptions trained_options(const FitRecord& record) {
    auto options = columns_from_json(record.options);
    options.nan = "keep";  // Every row of the table stays.
    return options;
  }

  // The table need not have the labels.
  static ColumnOptions features_of(ColumnOptions options) {
    options.labels.clear();
    return options;
  }

  // Returns nothing for a column that holds no texts, which is left out.
  std::optional<std::int64_t> longest_text(const std::string& name) const {
    std::size_t longest = 1;
    try {
      table_->read_text(name, [&](std::string_view text) { longest = std::max(longest, text.size()); });
    } catch (const UserError&) {
      log_warning("column {} of {} holds neither numbers nor texts and is left out", name, table_->source());
      return std::nullopt;
    }
    return static_cast<std::int64_t>(longest);
  }

  void write_texts(const TableWriter& writer, std::size_t column, const DataColumn& texts) const {
    constexpr std::size_t rows_at_once = 65536;
    const auto width = texts.row_bytes();
    std::vector<std::byte> bytes;
    std::int64_t first = 0;
    const auto flush = [&] {
      writer.write(column, first, bytes);
      first += static_cast<std::int64_t>(bytes.size() / width);
      bytes.clear();
    };
    std::vector<std::string> read;  // Nothing may be thrown while the table is read.
    table_->read_text(texts.name, [&](std::string_view text) { read.emplace_back(text); });
    for (const auto& text : read) {
      const auto at = bytes.size();
      bytes.resize(at + width);
      std::memcpy(bytes.data() + at, text.data(), std::min(text.size(), width));
      if (bytes.size() >= rows_at_once * width) flush();
    }
    flush();
  }

  std::vector<torch::Tensor> outputs_of(TableBatch batch) {
    auto inputs = tensors_.take(std::move(batch)).inputs;
    for (auto& input : inputs) input = input.to(device_);
    auto outputs = model_->forward(std::move(inputs), trained_.labels.size());
    for (auto& output : outputs) output = output.cpu();
    return outputs;
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
      throw UserError(fmt::format("{} does not return one output for each row", model_->file()));
    const auto& name = trained_.labels[label];
    auto shape = example.sizes().slice(1).vec();
    const auto classes = record_.classes.find(name);
    const bool has_names = classes != record_.classes.end();
    add_column({name + "__output", DType::float32, shape, false,
                has_names ? classes->second : std::vector<std::string>()});
    predicted_names_.push_back(nullptr);
    // If there are several labels, only those that are classes have a prediction.
    const auto& loss = trained_.losses[trained_.losses.size() == 1 ? 0 : label];
    predicted_.push_back(argmax && !shape.empty() &&
                         (trained_.labels.size() == 1 || loss == "nll" || loss == "cross_entropy"));
    if (!predicted_.back()) return;
    shape.erase(shape.begin());
    if (!has_names || !names_texts_) {
      add_column({name + "__prediction", DType::int64, shape});
      if (has_names) predicted_classes_[name + "__prediction"] = classes->second;
      return;
    }
    predicted_names_.back() = &classes->second;
    std::size_t longest = 1;
    for (const auto& text : classes->second) longest = std::max(longest, text.size());
    add_column({name + "__prediction", DType::uint8, {static_cast<std::int64_t>(longest)}, true});
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
            "{} returns outputs of shape [{}] for {} rows, and of shape [1, {}] for one", model_->file(),
            fmt::join(result.sizes(), ", "), rows, fmt::join(columns_[column].shape, ", ")));
      writer.write(column++, first, bytes_in(result));
      if (!predicted_[i]) continue;
      const auto classes = result.argmax(1).contiguous();
      if (predicted_names_[i] == nullptr)
        writer.write(column, first, bytes_in(classes));
      else
        writer.write(column, first, texts_of(classes, *predicted_names_[i], columns_[column].row_bytes()));
      ++column;
    }
  }

  static std::vector<std::byte> texts_of(const torch::Tensor& classes, const std::vector<std::string>& names,
                                         std::size_t width) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(classes.numel()) * width);
    for (std::int64_t i = 0; i < classes.numel(); ++i) {
      const auto& name = names.at(static_cast<std::size_t>(classes.data_ptr<std::int64_t>()[i]));
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * width, name.data(), name.size());
    }
    return bytes;
  }

  const FitRecord record_;
  const ColumnOptions trained_;
  std::shared_ptr<const DataTable> table_;
  const bool names_texts_;  // Predictions of classes with names are these names, and not numbers.
  const torch::Device device_;
  const std::unique_ptr<ModelProgram> model_;
  RowTensors tensors_;
  std::vector<DataColumn> columns_ = table_->columns();  // Columns of the output.
  // For each label: whether it has a prediction, and the names that are written instead of its numbers.
  std::vector<bool> predicted_;
  std::vector<const std::vector<std::string>*> predicted_names_;
  ClassNames predicted_classes_;
  std::int64_t batch_ = 1;
};

}  // namespace

TableFormat format_of_transform(const fs::path& output) {
  const auto format = format_of_output(output);
  if (format == TableFormat::npy)
    throw UserError(
        fmt::format("--output {}: a NumPy file has one column, and the output has several; use .h5 or .csv",
                    output.string()));
  return format;
}

std::int64_t transform_on_rank(Session& session, const fs::path& own_run, const std::string& files,
                               const fs::path& output, const TransformOptions& options) {
  const auto run = run_of_rank_0(session, own_run);
  session.use_device(options.device);
  std::unique_ptr<Transformation> transformation;
  std::vector<std::uint64_t> offsets;
  std::optional<AtomicFile> file;  // of rank 0
  std::string place;
  auto format = TableFormat::hdf5;
  session.together([&] {
    format = format_of_transform(output);
    transformation = std::make_unique<Transformation>(run, files, options, format, session.device());
    if (session.rank() == 0) refuse_own_file(files, output);
  });
  session.together([&] {
    if (session.rank() != 0) return;
    // The ranks write HDF5 together, from which rank 0 makes any other file at the end.
    place = file.emplace(format == TableFormat::hdf5 ? output : fs::path(output.string() + ".h5"))
                .temporary()
                .string();
    offsets = transformation->create(files, place);
  });
  session.broadcast(place);
  offsets.resize(transformation->columns().size());
  session.internals().communicator().broadcast("offsets", offsets.data(), offsets.size() * sizeof offsets[0],
                                               0);
  session.together(
      [&] { transformation->write(session, TableWriter(place, transformation->columns(), offsets)); });
  session.together([&] {
    if (!file) return;
    if (format == TableFormat::hdf5) return file->publish();
    export_rows(*open_table(std::vector<TableFile>{{"", place}}), RowSelection(), output,
                transformation->predicted_classes());
  });
  return transformation->rows();
}

Evaluation evaluate_on_rank(Session& session, const std::filesystem::path& own_run, const std::string& files,
                            const TransformOptions& options) {
  const auto run = run_of_rank_0(session, own_run);
  session.use_device(options.device);
  ColumnOptions trained;
  FitRecord record;
  std::shared_ptr<const DataTable> table;
  std::unique_ptr<ModelWithLosses> model;
  std::unique_ptr<Scores> scores;
  session.together([&] {
    record = find_fit(run.parent_path(), run.filename());
    trained = columns_from_json(record.options);
    std::vector<std::string> texts;
    for (const auto& [label, names] : record.classes) texts.push_back(label);
    table = number_classes(open_table(files, columns_of(trained)), texts, record.classes);
    if (session.rank() == 0)
      for (const auto& warning : table->warnings()) log_warning("{}", warning);
    model = std::make_unique<ModelWithLosses>(load_published_model(run, session.device()), *table, trained,
                                              session.device(), record.classes);
    model->model().train(false);
    scores = std::make_unique<Scores>(ScoreOptions{trained.labels, model->classifies(), options.metrics,
                                                   options.metric_functions, /*all=*/true});
  });
  session.together([&] {
    const torch::NoGradGuard no_grad;
    auto& tensors = model->tensors();
    TableReader reader(*table, RowSelection(),
                       {.columns = tensors.columns(),
                        .batch = rows_per_pass(options.batch, tensors.row_bytes()),
                        .shuffle = false,
                        .rank = session.rank(),
                        .world_size = session.size()});
    reader.start(0);
    scores->add(*model, reader);
  });
  auto evaluation = scores->reduce(session);
  evaluation.classes = record.classes;
  const auto skipped = model->tensors().take_skipped(session);
  evaluation.skipped = skipped.rows;
  if (skipped.rows > 0) evaluation.skipped_column = skipped.column;
  return evaluation;
}

std::string evaluation_to_json(const Evaluation& evaluation) {
  Json json = {{"rows", evaluation.rows}, {"loss", evaluation.loss}};
  for (const auto& [name, value] : evaluation.metrics) json[name] = value;
  if (evaluation.skipped > 0) {
    json["skipped"] = evaluation.skipped;
    json["skipped_column"] = evaluation.skipped_column;
  }
  if (!evaluation.confusion.empty()) json["confusion"] = evaluation.confusion;
  if (!evaluation.classes.empty()) json["classes"] = evaluation.classes;
  return json_text(json);
}

Evaluation evaluation_from_json(const std::string& text) {
  const auto json = parse_json(text);
  Evaluation evaluation;
  evaluation.rows = json.at("rows");
  evaluation.loss = number_from(json.at("loss"));
  for (const auto& [name, value] : json.items())
    if (name != "rows" && name != "loss" && !name.starts_with("skipped") && !value.is_object())
      evaluation.metrics[name] = number_from(value);
  if (json.contains("confusion")) evaluation.confusion = json["confusion"];
  if (json.contains("classes")) evaluation.classes = json["classes"];
  evaluation.skipped = json.value("skipped", std::int64_t{0});
  evaluation.skipped_column = json.value("skipped_column", "");
  return evaluation;
}

}  // namespace farandole
