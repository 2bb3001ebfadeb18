#include "farandole/estimator/fit.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <memory>
#include <torch/optim.h>
#include <torch/utils.h>

#include <nlohmann/json.hpp>

#include "farandole/base/clock.h"
#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/checkpoint/schema.h"
#include "farandole/estimator/fit_progress.h"
#include "farandole/estimator/objective.h"
#include "farandole/estimator/scores.h"
#include "farandole/estimator/store.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/internals.h"
#include "farandole/train/learning_rate.h"
#include "farandole/train/library_versions.h"
#include "farandole/train/make_optimizer.h"
#include "farandole/train/metrics_log.h"
#include "farandole/train/resource_usage.h"
#include "farandole/train/run_directory.h"
#include "farandole/train/training_state.h"

namespace farandole {
namespace {

LearningRate::Schedule schedule_of(const std::string& name) {
  using Schedule = LearningRate::Schedule;
  if (name == "step") return Schedule::step;
  if (name == "cosine") return Schedule::cosine;
  if (name == "polynomial") return Schedule::polynomial;
  return name == "one_cycle" ? Schedule::one_cycle : Schedule::constant;
}

std::vector<torch::Tensor> trained_parameters_of(ScriptModel& model) {
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : model.module().parameters())
    if (parameter.requires_grad()) parameters.push_back(parameter);
  if (parameters.empty())
    throw UserError(
        model.file() +
        " has no parameters to train; export a model that is not frozen, before torch.jit.freeze");
  return parameters;
}

DistributedOptimizer::NamedParameters named_trained_parameters(torch::nn::Module& module) {
  DistributedOptimizer::NamedParameters named;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) named.insert(item.key(), item.value());
  return named;
}

DistributedOptimizerOptions fit_optimizer_options(const EstimatorOptions& options,
                                                  std::function<bool()> stop) {
  DistributedOptimizerOptions result;
  result.backward_passes_per_step = options.accumulate;
  result.stop_requested = std::move(stop);
  return result;
}

// The rows to train on and those to validate on.
std::pair<RowSelection, std::optional<RowSelection>> split_rows(const DataTable& table,
                                                                const EstimatorOptions& options) {
  if (!options.validation_column.empty()) {
    const auto column = table.index_of(options.validation_column);
    if (!table.columns()[column].shape.empty())
      throw UserError(fmt::format(
          "column {} cannot choose the rows to validate on, because it has several values in a row",
          options.validation_column));
    const auto marked = std::make_shared<std::vector<bool>>();
    TableReader reader(table, RowSelection(table.rows()),
                       {.columns = {column}, .batch = 65536, .shuffle = false});
    reader.start(0);
    while (const auto batch = reader.next()) {
      const auto size = table.columns()[column].row_bytes();
      for (std::size_t i = 0; i < batch->rows.size(); ++i)
        marked->push_back(std::ranges::any_of(std::span(*batch->columns[0]).subspan(i * size, size),
                                              [](std::byte byte) { return byte != std::byte{0}; }));
    }
    const auto is_marked = [marked](std::int64_t row) { return (*marked)[static_cast<std::size_t>(row)]; };
    return {RowSelection(table.rows(), [is_marked](std::int64_t row) { return !is_marked(row); }),
            RowSelection(table.rows(), is_marked)};
  }
  if (options.validation == 0) return {RowSelection(table.rows()), std::nullopt};
  auto parts =
      random_split(table.rows(), std::vector{1 - options.validation, options.validation}, options.seed);
  return {std::move(parts[0]), std::move(parts[1])};
}

std::int64_t limited(std::int64_t limit, std::int64_t count) {
  return limit > 0 ? std::min(limit, count) : count;
}

ScoreOptions score_options(const Objective& objective, const EstimatorOptions& options) {
  return {options.labels, objective.classifies(), options.metrics, options.metric_functions};
}

// Throws: if model, loss, table and options do not fit together, as far as the first rows can tell.
void check_objective(Objective& objective, const DataTable& table, const EstimatorOptions& options,
                     int ranks) {
  trained_parameters_of(objective.model());
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
  const auto rows = objective.tensors().take(*reader.next());
  Scores scores(score_options(objective, options));
  if (rows.size() > 0) scores.add(objective.of(rows), rows);
}

class Fit {
 public:
  Fit(Session& session, const EstimatorOptions& options, const DataTable& table,
      std::unique_ptr<Objective> objective, FitRecord record, const std::function<bool()>& stop)
      : session_(session),
        options_(options),
        table_(table),
        record_(std::move(record)),
        objective_(std::move(objective)),
        model_(&objective_->model()),
        selections_(split_rows(table, options)),
        reader_(table, selections_.first, reader_options(options.batch, options.shuffle)),
        inner_(make_optimizer({options.optimizer, options.lr, options.momentum, options.weight_decay},
                              trained_parameters_of(*model_))),
        optimizer_(session, *inner_, named_trained_parameters(model_->module()),
                   fit_optimizer_options(options, [this, stop] { return failed_ || stop(); })) {
    if (selections_.second)
      validation_.emplace(
          table, *selections_.second,
          reader_options(options.validation_batch > 0 ? options.validation_batch : options.batch, false));
    steps_ = steps_in(limited(options.train_steps * options.accumulate, reader_.batches()));
    rate_.base = options.lr;
    rate_.world_size = session.size();
    rate_.scale = options.scale_lr;
    rate_.warmup_steps = options.warmup_steps;
    rate_.schedule = schedule_of(options.schedule);
    rate_.total_steps = options.epochs * steps_;
    rate_.step_size = options.lr_step_epochs * steps_;
    rate_.gamma = options.lr_gamma;
    session.broadcast(model_->module());
    torch::manual_seed(options.seed + 1 + static_cast<std::uint64_t>(session.rank()));
  }

  // Returns whether it continues a run. Rank 0 reads the checkpoint.
  // Throws: UserError on all ranks if the checkpoint is within an epoch of other rows.
  bool resume() {
    std::optional<Snapshot> snapshot;
    std::string state;
    session_.together([&] {
      if (!leads()) return;
      if (auto found = read_newest_checkpoint(record_.folder / "checkpoints"))
        snapshot = std::move(found->second);
      if (!snapshot) return;
      check_order(*snapshot, order(), "--table");
      state = FitProgress::from(*snapshot).to_json();
    });
    session_.broadcast(state);
    if (state.empty()) return false;
    restore(session_, model_->module(), *inner_, snapshot ? &*snapshot : nullptr);
    const auto progress = FitProgress::from_json(state);
    position_ = {progress.step, progress.epoch, 0};
    passes_done_ = progress.passes;
    epoch_loss_.fill_(progress.loss * static_cast<double>(progress.steps));
    epoch_steps_ = progress.steps;
    done_ = progress.done;
    // The learning rate continues where it was in the epoch, also with another number of ranks or batch size.
    session_.together([&] { begin_epoch(); });
    const auto scheduled = (position_.epoch + 1) * steps_ - steps_in(passes_ - passes_done_);
    schedule_offset_ = position_.epoch < options_.epochs ? scheduled - position_.step : 0;
    return true;
  }

  bool finished() const { return ended_early_ || position_.epoch >= options_.epochs; }
  const Position& position() const { return position_; }

  ExitCode run() {
    if (leads()) {
      store_ = std::make_unique<CheckpointStore>(
          CheckpointOptions{record_.folder / "checkpoints", 2, 0,
                            [this] { return session_.internals().lease->held(); }},
          session_.timeline());
      metrics_ = std::make_unique<MetricsLog>(record_.folder / "metrics.jsonl", position_.step);
      std::erase_if(record_.history, [&](const EpochResult& epoch) { return epoch.epoch > position_.epoch; });
      write_fit(record_);
    }
    while (!finished() && !stopping_) train_epoch();
    if (stopping_ && saved_step_ != position_.step) save(std::nan(""));
    session_.together([&] {
      if (leads()) store_->wait();
    });
    if (!finished()) return ExitCode::preempted;
    publish();
    return ExitCode::done;
  }

  // Collective: every rank of the job must call this in the same order.
  std::string describe_resources() { return resource_table(meter_.gather(session_), session_.hosts()); }
  std::int64_t steps() const { return steps_ * options_.epochs - schedule_offset_; }
  std::int64_t validation_rows() const { return validation_ ? validation_->selected_rows() : 0; }
  ScriptModel& model() { return *model_; }

 private:
  struct Loaded {
    Rows rows;
    double weight =
        1;  // Of the sum of the rows' losses, so that the ranks' average is the mean over all rows.
  };

  bool leads() const { return session_.rank() == 0; }
  double rate_of(std::int64_t step) const { return rate_.at(step + schedule_offset_); }
  std::int64_t steps_in(std::int64_t passes) const {
    return (passes + options_.accumulate - 1) / options_.accumulate;
  }
  SampleOrder order() const { return {reader_.selected_rows(), reader_.order_hash(), options_.seed}; }

  TableReaderOptions reader_options(std::int64_t batch, bool shuffle) const {
    return {.columns = objective_->tensors().columns(),
            .batch = batch,
            .shuffle = shuffle,
            .seed = options_.seed,
            .rank = session_.rank(),
            .world_size = session_.size()};
  }

  // Keeps the first error of this rank's data, which the others learn from the reduction of the gradients.
  void guard(const std::function<void()>& work) {
    if (failed_) return;
    try {
      work();
    } catch (const Error&) {
      error_ = std::current_exception();
      failed_ = true;
    }
  }

  // The batch of a pass. A rank that has no rows left has none, and contributes zeros to the gradients.
  std::optional<Loaded> load(std::int64_t pass) {
    const Span span(session_.timeline(), Category::data, "data");
    const auto together = options_.batch * session_.size();
    const auto all = std::min(reader_.left_rows() - (pass - passes_before_) * together, together);
    std::optional<Loaded> loaded;
    guard([&] {
      auto batch = reader_.next();
      if (!batch) return;
      auto rows = objective_->tensors().take(*std::move(batch));
      if (rows.size() > 0)
        loaded = {std::move(rows), static_cast<double>(session_.size()) / static_cast<double>(all)};
    });
    return loaded;
  }

  void begin_epoch() {
    reader_.start(position_.epoch, done_);
    passes_before_ = passes_done_;
    passes_ = limited(options_.train_steps * options_.accumulate, passes_done_ + reader_.batches());
  }

  void train_epoch() {
    const auto begin_ns = now_ns();
    model_->train(true);
    begin_epoch();
    if (!options_.metrics.empty() || !options_.metric_functions.empty())
      training_scores_.emplace(score_options(*objective_, options_));
    while (passes_done_ < passes_ && !stopping_) {
      epoch_loss_ += step();
      ++epoch_steps_;
      if (options_.checkpoint_steps > 0 && position_.step % options_.checkpoint_steps == 0 &&
          passes_done_ < passes_)
        save(std::nan(""));
    }
    session_.set_step(-1);
    if (passes_done_ < passes_) return;
    ++position_.epoch;
    passes_done_ = 0;
    done_.clear();
    EpochResult result;
    result.epoch = position_.epoch;
    result.step = position_.step;
    result.loss = mean_loss();
    epoch_loss_.zero_();
    epoch_steps_ = 0;
    result.lr = rate_of(position_.step - 1);
    if (!std::isfinite(result.loss))
      session_.together([&] {
        throw Error(fmt::format("the loss is {} in epoch {}; lower --lr", result.loss, result.epoch));
      });
    if (training_scores_) result.training_metrics = training_scores_->reduce(session_).metrics;
    if (validation_) {
      const auto evaluation = validate();
      result.validation_loss = evaluation.loss;
      result.metrics = evaluation.metrics;
    }
    result.seconds = seconds_since(begin_ns);
    end_epoch(result);
  }

  // Of the epoch so far.
  // Collective: every rank of the job must call this in the same order.
  double mean_loss() {
    return session_.allreduce(epoch_loss_ / static_cast<double>(std::max<std::int64_t>(epoch_steps_, 1)))
        .item<double>();
  }

  torch::Tensor step() {
    auto& timeline = session_.timeline();
    session_.set_step(position_.step);
    const Span whole(timeline, Category::step, "step");
    const auto begin_ns = now_ns();
    const auto passes = std::min<std::int64_t>(options_.accumulate, passes_ - passes_done_);
    for (auto& group : inner_->param_groups()) group.options().set_lr(rate_of(position_.step));
    std::vector<Loaded> batches;
    for (std::int64_t pass = 0; pass < passes; ++pass)
      if (auto loaded = load(passes_done_ + pass)) batches.push_back(*std::move(loaded));
    torch::Tensor first;
    const auto evaluate = [&] {
      optimizer_.zero_grad();
      auto sum = torch::zeros({}, torch::kFloat64);
      for (const auto& batch : batches) {
        torch::Tensor loss;
        guard([&] {
          const Span span(timeline, Category::forward, "forward");
          const auto losses = objective_->of(batch.rows);
          if (training_scores_ && !first.defined()) training_scores_->add(losses, batch.rows);
          loss = losses.sum * (batch.weight / static_cast<double>(passes));
        });
        if (!loss.defined()) continue;
        const Span span(timeline, Category::backward, "backward");
        loss.backward();
        sum += loss.detach();
      }
      if (!first.defined()) first = sum;
      return sum;
    };
    if (options_.optimizer == "lbfgs") {
      optimizer_.step([&] { return session_.allreduce(evaluate()); });
    } else {
      evaluate();
      try {
        optimizer_.step();
      } catch (const NonFiniteGradient& gradient) {  // On all ranks.
        session_.together([&] {
          throw Error(
              fmt::format("step {}: {}; lower --lr, or look for unusual values in the features (--nan)",
                          position_.step + 1, gradient.what()));
        });
      }
    }
    stopping_ = optimizer_.stopping();
    if (stopping_)
      session_.together([&] {
        if (failed_) std::rethrow_exception(error_);
      });
    ++position_.step;
    passes_done_ += passes;
    if (constexpr int log_steps = 10; position_.step == 1 || position_.step % log_steps == 0) {
      const double loss = session_.allreduce(first).item<double>();
      const double seconds = seconds_since(begin_ns);
      if (leads())
        metrics_->write(MetricsLog::Training{
            position_.step, position_.epoch, loss, rate_of(position_.step - 1),
            static_cast<double>(options_.batch * passes * session_.size()) / seconds, 1e3 * seconds});
    }
    return first;
  }

  Evaluation validate() {
    const Span span(session_.timeline(), Category::evaluation, "validation");
    const torch::NoGradGuard no_grad;
    model_->train(false);
    Scores scores(score_options(*objective_, options_));
    session_.together([&] {
      validation_->start(0);
      for (std::int64_t batch = 0; options_.validation_steps == 0 || batch < options_.validation_steps;
           ++batch) {
        auto next = validation_->next();
        if (!next) break;
        const auto rows = objective_->tensors().take(*std::move(next));
        if (rows.size() > 0) scores.add(objective_->of(rows), rows);
      }
    });
    return scores.reduce(session_);
  }

  void end_epoch(const EpochResult& result) {
    const double score = result.validation_loss.value_or(result.loss);
    const auto usage = meter_.gather(session_);
    std::int64_t ends = 0;
    if (leads()) {
      record_.history.push_back(result);
      MetricsLog::Values values{result.step, result.epoch, {}};
      if (result.validation_loss) values.values["eval_loss"] = *result.validation_loss;
      for (const auto& [name, value] : result.metrics) values.values["eval_" + name] = value;
      for (const auto& [name, value] : result.training_metrics) values.values["train_" + name] = value;
      if (!values.values.empty()) metrics_->write(values);
      metrics_->write(MetricsLog::Resources{result.step, result.epoch, usage});
      if (options_.verbose > 0) print(result);
      const auto best =
          std::min_element(record_.history.begin(), record_.history.end(), [](const auto& a, const auto& b) {
            return a.validation_loss.value_or(a.loss) < b.validation_loss.value_or(b.loss);
          });
      if (options_.patience > 0 && record_.history.end() - best > options_.patience) ends = 1;
      if (options_.on_epoch && !options_.on_epoch(result)) ends = 1;
    }
    session_.internals().communicator().broadcast("end", &ends, sizeof ends, 0);
    ended_early_ = ends != 0;
    save(score);
    if (leads()) write_fit(record_);
  }

  void print(const EpochResult& result) const {
    std::string line = fmt::format("epoch {}  step {}  loss {:.4f}", result.epoch, result.step, result.loss);
    for (const auto& [name, value] : result.training_metrics)
      line += fmt::format("  training {} {:.4f}", name, value);
    if (result.validation_loss) line += fmt::format("  validation loss {:.4f}", *result.validation_loss);
    for (const auto& [name, value] : result.metrics) line += fmt::format("  {} {:.4f}", name, value);
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

  void save(double score) {
    const Span span(session_.timeline(), Category::checkpoint, "snapshot");
    auto builder = leads() ? store_->builder() : SnapshotBuilder();
    auto position = position_;
    const auto done = passes_done_ > 0 ? reader_.done_after(passes_done_ - passes_before_) : RowRanges();
    for (const auto& [first, end] : done) position.samples += end - first;
    capture(session_, model_->module(), *inner_, position, builder);
    if (position.samples > 0) {
      const FitProgress progress{position.step, position.epoch, passes_done_,
                                 done,          mean_loss(),    epoch_steps_};
      if (leads()) {
        add_order(builder, order());
        progress.add_to(builder);
      }
    }
    saved_step_ = position_.step;
    if (!leads()) return;
    auto snapshot = builder.finish();
    snapshot.config = record_.options.dump();
    snapshot.versions = nlohmann::json(library_versions()).dump();
    snapshot.score = score;
    for (const auto& epoch : record_.history) {
      const double of_epoch = epoch.validation_loss.value_or(epoch.loss);
      if (of_epoch >= snapshot.best_score) continue;
      snapshot.best_score = of_epoch;
      snapshot.best_step = epoch.step;
    }
    store_->save(std::move(snapshot));
  }

  // The result of the run: the model of the last epoch or of the best one.
  void publish() {
    session_.together([&] {
      if (!leads()) return;
      if (options_.keep_best) take_best();
      model_->train(false);
      model_->save_state(record_.folder / "state.h5");
      model_->save(record_.folder / "model.pt");
      record_.finished = true;
      write_fit(record_);
    });
  }

  void take_best() {
    std::optional<CheckpointInfo> best;
    for (auto& info : list_checkpoints(record_.folder / "checkpoints"))
      if (!std::isnan(info.score) && (!best || info.score < best->score)) best = std::move(info);
    if (!best) return;
    const auto snapshot = read_checkpoint(best->file);
    const torch::NoGradGuard no_grad;
    const auto copy = [&](const std::string& name, torch::Tensor& to) {
      const auto* array = snapshot.find(schema::model + name);
      if (array == nullptr) return;
      auto from = torch::empty(array->shape, to.options());
      std::copy(array->bytes.begin(), array->bytes.end(), static_cast<std::byte*>(from.data_ptr()));
      to.copy_(from);
    };
    for (auto& item : model_->module().named_parameters()) copy(item.key(), item.value());
    for (auto& item : model_->module().named_buffers())
      if (item.value().defined()) copy(item.key(), item.value());
  }

  Session& session_;
  const EstimatorOptions& options_;
  const DataTable& table_;
  FitRecord record_;
  std::unique_ptr<Objective> objective_;
  ScriptModel* model_;
  std::pair<RowSelection, std::optional<RowSelection>> selections_;
  TableReader reader_;
  std::optional<TableReader> validation_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  DistributedOptimizer optimizer_;
  LearningRate rate_;

  Position position_;
  std::int64_t passes_ = 0;  // Batches of a rank in this epoch.
  std::int64_t passes_done_ = 0,
               passes_before_ = 0;    // In this epoch; and those before the reader was started.
  RowRanges done_;                    // Read before the reader was started.
  std::int64_t steps_ = 0;            // Optimizer steps of a whole epoch.
  std::int64_t schedule_offset_ = 0;  // From steps done to steps of the schedule.
  torch::Tensor epoch_loss_ = torch::zeros({}, torch::kFloat64);  // Sum over the steps of this epoch.
  std::int64_t epoch_steps_ = 0;
  std::optional<Scores> training_scores_;
  std::int64_t saved_step_ = -1;
  bool stopping_ = false, ended_early_ = false;  // Equal on all ranks.
  std::atomic<bool> failed_ = false;             // Of this rank; its reason follows.
  std::exception_ptr error_;

  // On rank 0 only.
  std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<MetricsLog> metrics_;
  ResourceMeter meter_;
};

}  // namespace

ExitCode fit_on_rank(Session& session, const EstimatorOptions& options, const std::string& files,
                     const std::function<bool()>& stop, std::string& run) {
  std::shared_ptr<const DataTable> table;
  std::unique_ptr<Objective> objective;
  FitRecord record;
  std::string folder;
  session.together([&] {
    table = open_table(files);
    objective = std::make_unique<Objective>(options.model, *table, options);
    check_objective(*objective, *table, options, session.size());
  });
  session.together([&] {
    if (session.rank() != 0) return;
    record = open_fit(options, files);
    session.internals().take_lease(record.folder);
    folder = record.folder.string();
    run = record.id;
  });
  session.broadcast(folder);
  session.broadcast(run);
  record.folder = folder;
  session.start_recording({.run_dir = record.folder});
  Fit fit(session, options, *table, std::move(objective), record, stop);
  const bool resumed = fit.resume();
  if (session.rank() == 0 && options.verbose > 0) {
    fmt::print("{} {} on {} rank{}: {} rows, {} of them for validation\n", resumed ? "continuing" : "fitting",
               folder, session.size(), session.size() == 1 ? "" : "s", table->rows(), fit.validation_rows());
    if (resumed) fmt::print("continuing from step {} of {}\n", fit.position().step, fit.steps());
    std::fflush(stdout);
  }
  std::optional<RunDirectory> directory;
  if (session.rank() == 0) {
    directory.emplace(record.folder);
    RunFacts facts;
    facts.ranks = session.size();
    facts.hosts = session.hosts();
    facts.device = "cpu";
    facts.program = "farandole fit";
    facts.global_batch = options.batch * options.accumulate * session.size();
    facts.config = record.options.dump();
    facts.threads = torch::get_num_threads();
    facts.cores = session.node_cores();
    facts.versions = library_versions();
    facts.between_nodes = session.between_nodes();
    facts.parameters = 0;
    for (const auto& parameter : fit.model().module().parameters()) *facts.parameters += parameter.numel();
    directory->started(facts, fit.position().step);
  }
  ExitCode result = ExitCode::failure;
  try {
    result = fit.run();
  } catch (const Error& error) {
    if (directory) directory->ended(static_cast<int>(error.exit_code()));
    throw;
  }
  const auto resources = fit.describe_resources();
  session.publish_timeline();
  if (directory) directory->ended(static_cast<int>(result));
  if (session.rank() == 0 && options.verbose > 0) {
    fmt::print("\n{}\n", resources);
    if (result == ExitCode::preempted)
      fmt::print("stop requested: saved at step {} of {}; the same command continues from there\n",
                 fit.position().step, fit.steps());
    else
      fmt::print("the model is {}\n", (record.folder / "model.pt").string());
  }
  return result;
}

}  // namespace farandole
