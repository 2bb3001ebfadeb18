#include "farandole/estimator/table_training.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <span>
#include <torch/utils.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/text/json.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/checkpoint/schema.h"
#include "farandole/train/precision.h"
#include "farandole/train/session_internals.h"

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

template <class T>
std::vector<T> values_of(const Array* array) {
  if (array == nullptr) return {};
  std::vector<T> values(array->bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), array->bytes.data(), values.size() * sizeof(T));
  return values;
}

template <class T>
void add(SnapshotBuilder& snapshot, const std::string& path, DType dtype, const std::vector<T>& values,
         const std::vector<std::int64_t>& shape) {
  const auto to = snapshot.add(path, dtype, shape);
  if (!to.empty()) std::memcpy(to.data(), values.data(), to.size());
}

void print(const EpochResult& result) {
  std::string line = fmt::format("epoch {}  step {}  loss {:.4f}", result.epoch, result.step, result.loss);
  for (const auto& [name, value] : result.training_metrics)
    line += fmt::format("  training {} {:.4f}", name, value);
  if (result.validation_loss) line += fmt::format("  validation loss {:.4f}", *result.validation_loss);
  for (const auto& [name, value] : result.metrics) line += fmt::format("  {} {:.4f}", name, value);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// Whether a rank has a batch of one row, which batch normalization cannot train on.
bool has_batch_of_one_row(std::int64_t rows, std::int64_t ranks, const EstimatorOptions& options) {
  const auto limit = options.train_steps * options.accumulate;
  const auto ends_with_one = [&](std::int64_t own) {
    const auto passes = (own + options.batch - 1) / options.batch;
    return own % options.batch == 1 && !options.drop_last && (limit == 0 || passes <= limit);
  };
  return options.batch == 1 || ends_with_one(rows / ranks) ||
         (rows % ranks > 0 && ends_with_one(rows / ranks + 1));
}

// Throws: UserError if the model cannot train on a batch of one row, which the last of an epoch may be.
void check_batch_of_one_row(ModelWithLosses& model, const DataTable& table, const RowSelection& rows,
                            const EstimatorOptions& options) {
  const auto reason_for = [&](std::int64_t count) -> std::string {
    TableReader reader(table, rows, {.columns = model.tensors().columns(), .batch = count, .shuffle = false});
    reader.start(0);
    while (auto batch = reader.next())
      if (const auto taken = model.take(*std::move(batch)); taken.size() == count)
        return model.model().why_not_trained_on(taken.inputs);
    return "";
  };
  const auto reason = reason_for(1);
  if (reason.empty() || !reason_for(2).empty()) return;  // The first step will tell.
  throw UserError(fmt::format(
      "{} does not train on a batch of one row, which {} ({}); choose another --batch-size{}",
      model.model().file(),
      options.batch == 1 ? "--batch-size 1 asks for" : "the last batch of each epoch would be on a rank",
      reason, options.batch == 1 ? "" : ", or leave out the last rows with --drop-last"));
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

void check_fit(ModelWithLosses& model, const DataTable& table, const EstimatorOptions& options, int ranks) {
  model.model().trained_parameters();
  const auto [training, validation] = split_rows(table, options);
  TableReader reader(table, training,
                     {.columns = model.tensors().columns(), .batch = options.batch, .shuffle = false});
  if (reader.selected_rows() < ranks)
    throw UserError(fmt::format("{} has {} rows to train on for {} ranks; use fewer ranks or more rows",
                                table.source(), reader.selected_rows(), ranks));
  if (options.drop_last && reader.selected_rows() / ranks < options.batch)
    throw UserError(
        fmt::format("{} has {} rows to train on, which fill no batch of {} rows on {} rank{}; use a "
                    "smaller --batch-size, or leave out --drop-last",
                    table.source(), reader.selected_rows(), options.batch, ranks, ranks == 1 ? "" : "s"));
  if (validation && validation->count(0, table.rows()) == 0)
    throw UserError(fmt::format("{} has no rows to validate on", table.source()));
  const torch::NoGradGuard no_grad;
  model.model().train(false);  // The batch changes no statistics of normalization layers.
  reader.start(0);
  Scores scores({options.labels, model.classifies(), options.metrics, options.metric_functions});
  scores.add(model, reader, 1);
  if (has_batch_of_one_row(reader.selected_rows(), ranks, options))
    check_batch_of_one_row(model, table, training, options);
}

FitProgress FitProgress::from(const Snapshot& snapshot) {
  const auto passes = values_of<std::int64_t>(snapshot.find(schema::sampler_passes)),
             bounds = values_of<std::int64_t>(snapshot.find(schema::sampler_ranges));
  const auto loss = values_of<double>(snapshot.find(schema::sampler_loss));
  FitProgress progress;
  if (position_of(snapshot).samples == 0 || passes.size() != 1 || loss.size() != 2) return progress;
  progress.passes = passes[0];
  progress.loss = loss[0];
  progress.steps = static_cast<std::int64_t>(loss[1]);
  for (std::size_t i = 0; i + 1 < bounds.size(); i += 2) progress.done.push_back({bounds[i], bounds[i + 1]});
  return progress;
}

void FitProgress::add_to(SnapshotBuilder& snapshot) const {
  std::vector<std::int64_t> bounds;
  for (const auto& [first, end] : done) bounds.insert(bounds.end(), {first, end});
  add(snapshot, schema::sampler_ranges, DType::int64, bounds, {static_cast<std::int64_t>(done.size()), 2});
  add(snapshot, schema::sampler_loss, DType::float64, std::vector{loss, static_cast<double>(steps)}, {2});
  snapshot.add_integer(schema::sampler_passes, passes);
}

std::string FitProgress::to_json() const {
  Json ranges = Json::array();
  for (const auto& [first, end] : done) ranges.push_back({first, end});
  return json_text({{"passes", passes}, {"done", ranges}, {"loss", loss}, {"steps", steps}});
}

FitProgress FitProgress::from_json(const std::string& text) {
  const auto json = parse_json(text);
  FitProgress progress{json.at("passes"), {}, json.at("loss"), json.at("steps")};
  for (const auto& range : json.at("done")) progress.done.push_back({range.at(0), range.at(1)});
  return progress;
}

TableTraining::TableTraining(Session& session, const EstimatorOptions& options, const DataTable& table,
                             FitRows rows, ModelWithLosses& model, FitRecord& record)
    : session_(session),
      options_(options),
      model_(model),
      record_(record),
      reader_(table, std::move(rows.training),
              {.columns = model.tensors().columns(),
               .batch = options.batch,
               .shuffle = options.shuffle,
               .seed = options.seed,
               .rank = session.rank(),
               .world_size = session.size()}),
      whole_(passes_after(0)),
      loss_sum_(torch::zeros({}, torch::dtype(torch::kFloat64).device(session.device()))) {
  model_.model().train(true);
  model_.tensors().forget_skipped();  // Of check_fit().
  if (!rows.validation) return;
  validation_.emplace(
      table, *std::move(rows.validation),
      TableReaderOptions{.columns = model.tensors().columns(),
                         .batch = options.validation_batch > 0 ? options.validation_batch : options.batch,
                         .shuffle = false,
                         .rank = session.rank(),
                         .world_size = session.size()});
}

std::int64_t TableTraining::passes_after(std::int64_t done) const {
  const auto passes = done + (options_.drop_last ? reader_.full_batches() : reader_.batches());
  const auto limit = options_.train_steps * options_.accumulate;
  return limit > 0 ? std::min(limit, passes) : passes;
}

ScoreOptions TableTraining::score_options() const {
  return {options_.labels, model_.classifies(), options_.metrics, options_.metric_functions};
}

void TableTraining::begin_epoch(std::int64_t epoch) {
  const auto progress = std::exchange(resumed_, std::nullopt).value_or(FitProgress());
  reader_.start(epoch, progress.done);
  passes_done_ = passes_before_ = progress.passes;
  passes_ = passes_after(passes_done_);
  loss_sum_.fill_(progress.loss * static_cast<double>(progress.steps));
  loss_steps_ = progress.steps;
  if (!options_.metrics.empty() || !options_.metric_functions.empty()) scores_.emplace(score_options());
  const auto before = std::exchange(resumed_scores_, torch::Tensor());
  if (scores_ && before.defined()) scores_->restore(before);
}

TrainingData::Passes TableTraining::passes() const {
  return {whole_, passes_ - passes_done_};
}

// All batches of the step are loaded with its first pass, because their weights depend on all of them.
bool TableTraining::load(std::int64_t pass, std::int64_t passes, const Guard& guard) {
  if (pass > 0) return has_rows_;
  const auto together = options_.batch * session_.size();
  const auto left = reader_.left_rows() - (passes_done_ - passes_before_) * together;
  passes_done_ += passes;
  loaded_.assign(static_cast<std::size_t>(passes), std::nullopt);
  auto rows_of_pass = torch::zeros({passes}, torch::kInt64);  // Of all ranks.
  auto* const counts = rows_of_pass.data_ptr<std::int64_t>();
  {
    const Span span(session_.timeline(), Category::data, "data");
    for (std::int64_t i = 0; i < passes; ++i)
      guard([&] {
        auto batch = reader_.next();
        if (!batch) return;
        auto rows = model_.take(*std::move(batch));
        if (rows.size() == 0) return;
        counts[i] = rows.size();
        loaded_[static_cast<std::size_t>(i)] = Loaded{std::move(rows), 1, false};
      });
  }
  if (options_.nan == "skip")  // Only the rank that reads a row knows whether it is left out.
    session_.allreduce_(rows_of_pass, ReduceOp::sum);
  else
    for (std::int64_t i = 0; i < passes; ++i) counts[i] = std::min(left - i * together, together);
  const auto used = passes - std::count(counts, counts + passes, 0);
  has_rows_ = used > 0;
  for (std::int64_t i = 0; i < passes; ++i)
    if (auto& batch = loaded_[static_cast<std::size_t>(i)])
      batch->weight =
          static_cast<double>(session_.size() * batch->rows.size()) / static_cast<double>(counts[i] * used);
  return has_rows_;
}

torch::Tensor TableTraining::loss(std::int64_t pass) {
  auto& batch = loaded_[static_cast<std::size_t>(pass)];
  if (!batch) return {};
  const auto losses = model_.of(batch->rows);
  if (scores_ && !batch->scored) scores_->add(losses, batch->rows);
  batch->scored = true;
  return losses.mean * batch->weight;
}

void TableTraining::add_loss(const torch::Tensor& loss) {
  loss_sum_ += loss;
  ++loss_steps_;
}

// Returns the mean loss of the epoch so far, over all ranks.
double TableTraining::mean_loss() {
  return session_.allreduce(loss_sum_.cpu() / static_cast<double>(std::max<std::int64_t>(loss_steps_, 1)))
      .item<double>();
}

std::int64_t TableTraining::save(SnapshotBuilder& snapshot) {
  if (passes_done_ == 0) return 0;
  const FitProgress progress{passes_done_, reader_.done_after(passes_done_ - passes_before_), mean_loss(),
                             loss_steps_};
  const auto scores = scores_ ? scores_->sums(session_) : torch::Tensor();
  std::int64_t rows = 0;
  for (const auto& [first, end] : progress.done) rows += end - first;
  if (session_.rank() != 0) return rows;
  add_order(snapshot, order());
  progress.add_to(snapshot);
  if (!scores_) return rows;
  const auto to = snapshot.add(schema::sampler_scores, DType::float64, scores.sizes().vec());
  std::memcpy(to.data(), scores.data_ptr(), to.size());
  return rows;
}

void TableTraining::restore(const Position&, const Snapshot* snapshot) {
  std::string progress;
  session_.together([&] {
    if (snapshot == nullptr) return;
    check_order(*snapshot, order(), "--table");
    progress = FitProgress::from(*snapshot).to_json();
  });
  session_.broadcast(progress);
  resumed_ = FitProgress::from_json(progress);
  if (snapshot == nullptr) return;
  if (const auto sums = values_of<double>(snapshot->find(schema::sampler_scores)); !sums.empty())
    resumed_scores_ = torch::tensor(sums, torch::kFloat64);
}

bool TableTraining::begin(const Position& position) {
  session_.together([&] {
    if (session_.rank() != 0) return;
    std::erase_if(record_.history, [&](const EpochResult& result) { return result.epoch > position.epoch; });
    write_fit(record_);
  });
  return !on_rank_0(record_.out_of_patience(options_.patience));
}

bool TableTraining::on_rank_0(bool value) {
  session_.internals().communicator().broadcast("end", &value, sizeof value, 0);
  return value;
}

std::optional<Evaluation> TableTraining::validate(const std::function<bool()>& must_stop) {
  constexpr std::int64_t batches_between_votes = 64;
  const Span span(session_.timeline(), Category::evaluation, "validation");
  const torch::NoGradGuard no_grad;
  const Autocast autocast(parse_precision(options_.precision), session_.device());
  Scores scores(score_options());
  session_.together([&] { validation_->start(0); });
  auto left = validation_->batches();
  if (options_.validation_steps > 0) left = std::min(left, options_.validation_steps);
  for (; left > 0; left -= batches_between_votes) {
    session_.together([&] { scores.add(model_, *validation_, std::min(left, batches_between_votes)); });
    if (left > batches_between_votes && must_stop()) return std::nullopt;
  }
  return scores.reduce(session_);
}

// The rows are the same in every epoch, so the first one of this start tells all.
void TableTraining::report_skipped() {
  if (options_.nan != "skip" || std::exchange(has_reported_skipped_, true)) return;
  const auto skipped = model_.tensors().take_skipped(session_);
  if (skipped.rows == 0 || session_.rank() != 0 || options_.verbose == 0) return;
  fmt::print("{}\n", skipped.describe());
  std::fflush(stdout);
}

std::optional<Objective::Result> TableTraining::end_epoch(const Epoch& epoch, RunLog* log,
                                                          const std::function<bool()>& must_stop) {
  report_skipped();
  std::optional<Evaluation> evaluation;
  if (validation_) {
    model_.model().train(false);
    evaluation = validate(must_stop);
    model_.model().train(true);
    if (!evaluation) return std::nullopt;
    if (evaluation->rows == 0)
      session_.together([&] { throw UserError("all rows to validate on have a NaN; correct the table"); });
  }
  EpochResult result;
  result.epoch = epoch.number;
  result.step = epoch.step;
  result.loss = mean_loss();
  result.lr = epoch.lr;
  result.seconds = epoch.seconds;
  if (!std::isfinite(result.loss))
    session_.together(
        [&] { throw Error(fmt::format("the loss is not finite in epoch {}; lower --lr", result.epoch)); });
  if (scores_) result.training_metrics = scores_->reduce(session_).metrics;
  if (evaluation) {
    if (!std::isfinite(evaluation->loss) && log != nullptr && !std::exchange(has_warned_of_loss_, true))
      log_warning(
          "the validation loss of epoch {} is {}; such an epoch is worse than all others for --patience and --best",
          result.epoch, evaluation->loss);
    result.validation_loss = evaluation->loss;
    result.metrics = evaluation->metrics;
  }
  bool ends = false;
  if (log != nullptr) {
    record_epoch(result, *log);
    ends = (options_.on_epoch && !options_.on_epoch(result)) || record_.out_of_patience(options_.patience);
  }
  return Result{score_of(result), on_rank_0(ends)};
}

void TableTraining::record_epoch(const EpochResult& result, RunLog& log) {
  record_.history.push_back(result);
  MetricsLog::Values values{result.step, result.epoch, {}};
  if (result.validation_loss) values.values.emplace_back("eval_loss", *result.validation_loss);
  for (const auto& [name, value] : result.metrics) values.values.emplace_back("eval_" + name, value);
  for (const auto& [name, value] : result.training_metrics)
    values.values.emplace_back("train_" + name, value);
  if (!values.values.empty()) log.metrics.write(values);
  if (options_.verbose > 0) print(result);
  // Before the checkpoint, because a later start leaves out the epochs after its checkpoint, but
  // cannot add one.
  try {
    write_fit(record_);
  } catch (const Error& error) {  // On a full disk, training goes on.
    log_warning("the history of epoch {} is not kept yet: {}", result.epoch, error.what());
  }
}

void TableTraining::finish(RunLog&) {
  if (options_.keep_best) take_best();
  auto& model = model_.model();
  model.train(false);
  model.save_state(record_.folder / "state.h5");
  if (const auto earlier = published_model(record_.folder); earlier.filename() != model.published_name())
    std::filesystem::remove(earlier);  // A model of another kind, which this run was given before.
  model.save(record_.folder / model.published_name());
  record_.finished = true;
  write_fit(record_);
}

void TableTraining::take_best() {
  const auto checkpoints = record_.folder / "checkpoints";
  std::optional<CheckpointInfo> best;
  for (auto& info : list_checkpoints(checkpoints))
    if (std::isfinite(info.score) && (!best || info.score < best->score)) best = std::move(info);
  if (best)
    load_model(read_checkpoint(best->file, memory_of(module())), module());
  else
    log_warning("no checkpoint has a finite loss, so --best keeps the model of the last epoch");
}

}  // namespace farandole
