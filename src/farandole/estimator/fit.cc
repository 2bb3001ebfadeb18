#include "farandole/estimator/fit.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <torch/utils.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/estimator/epoch_trainer.h"
#include "farandole/estimator/fit_history.h"
#include "farandole/launch/process/memory.h"
#include "farandole/train/run/resource_usage.h"
#include "farandole/train/run/run_directory.h"
#include "farandole/train/session_internals.h"

namespace farandole {
namespace {

class Fit {
 public:
  Fit(Session& session, const EstimatorOptions& options, const DataTable& table, Objective& objective,
      FitRecord record, const std::function<bool()>& stop)
      : Fit(session, options, table, objective, std::move(record), stop, split_rows(table, options)) {}

  // Returns whether it continues a run. Rank 0 reads the checkpoint.
  // Throws: UserError on all ranks if the checkpoint is within an epoch of other rows.
  bool resume() {
    std::optional<Snapshot> snapshot;
    session_.together([&] {
      if (!leads()) return;
      const auto memory = memory_of(objective_.model().module());
      if (auto found = read_newest_checkpoint(checkpoints(), memory)) snapshot = std::move(found->second);
    });
    return trainer_.resume(std::move(snapshot));
  }

  ExitCode run() {
    if (leads()) {
      store_ = std::make_unique<CheckpointStore>(
          CheckpointOptions{checkpoints(), 2, 0, [this] { return session_.internals().holds_lease(); }},
          session_.timeline());
      history_.begin(trainer_.steps_done(), trainer_.epochs_done());
    }
    ended_early_ = on_rank_0(leads() && history_.out_of_patience());
    while (!finished() && !stopping()) run_epoch();
    if (stopping() && saved_step_ != trainer_.steps_done()) save(std::nan(""));
    await_writer(session_, store_.get());
    session_.together([&] {
      if (leads()) store_->wait();
    });
    if (!finished()) return ExitCode::preempted;
    publish();
    return ExitCode::done;
  }

  // Collective: every rank of the job must call this in the same order.
  std::string describe_resources() { return resource_table(meter_.gather(), session_.hosts()); }
  const EpochTrainer& trainer() const { return trainer_; }
  std::int64_t validation_rows() const { return validation_ ? validation_->selected_rows() : 0; }

 private:
  Fit(Session& session, const EstimatorOptions& options, const DataTable& table, Objective& objective,
      FitRecord record, const std::function<bool()>& stop, const FitRows& rows)
      : session_(session),
        options_(options),
        objective_(objective),
        stop_(stop),
        history_(options, std::move(record)),
        trainer_(session, options, table, rows.training, objective, stop),
        meter_(session) {
    if (!rows.validation) return;
    validation_.emplace(
        table, *rows.validation,
        TableReaderOptions{.columns = objective.tensors().columns(),
                           .batch = options.validation_batch > 0 ? options.validation_batch : options.batch,
                           .shuffle = false,
                           .rank = session.rank(),
                           .world_size = session.size()});
  }

  bool stopping() const { return trainer_.stopping() || stopped_in_validation_; }
  bool leads() const { return session_.rank() == 0; }
  bool finished() const { return ended_early_ || trainer_.epochs_done() >= options_.epochs; }
  std::filesystem::path checkpoints() const { return history_.record().folder / "checkpoints"; }

  void run_epoch() {
    const auto begin_ns = now_ns();
    trainer_.begin_epoch();
    while (!trainer_.epoch_ended() && !trainer_.stopping()) {
      log(trainer_.step());
      if (options_.checkpoint_steps > 0 && trainer_.steps_done() % options_.checkpoint_steps == 0 &&
          !trainer_.epoch_ended())
        save(std::nan(""));
    }
    session_.set_step(-1);
    if (!trainer_.epoch_ended()) return;
    // The validation may last longer than a job that is asked to stop. Then the epoch is saved as one that
    // has no rows left, and the next start validates it.
    std::optional<Evaluation> evaluation;
    if (validation_ && !stopping()) {
      share_buffers();
      evaluation = validate();
    }
    if (validation_ && !evaluation) return;
    auto result = trainer_.end_epoch();
    if (evaluation) {
      result.validation_loss = evaluation->loss;
      result.metrics = evaluation->metrics;
    }
    result.seconds = seconds_since(begin_ns);
    end_epoch(result);
  }

  void log(const StepResult& result) {
    constexpr int log_steps = 10;
    const auto step = trainer_.steps_done();
    if (step != 1 && step % log_steps != 0) return;
    const double loss = session_.allreduce(result.loss).item<double>();
    if (leads()) history_.add(step, trainer_.epochs_done(), loss, result);
  }

  // Batch normalization has running statistics of its own on each rank. Those of rank 0 are validated, saved
  // and used from then on, so that a resumed run gives the same results.
  void share_buffers() {
    for (auto& buffer : objective_.model().module().buffers()) session_.broadcast_(buffer);
  }

  // No value if the job is asked to stop.
  std::optional<Evaluation> validate() {
    constexpr std::int64_t batches_between_votes = 64;
    const Span span(session_.timeline(), Category::evaluation, "validation");
    const torch::NoGradGuard no_grad;
    objective_.model().train(false);
    Scores scores(score_options(objective_, options_));
    session_.together([&] { validation_->start(0); });
    auto left = validation_->batches();
    if (options_.validation_steps > 0) left = std::min(left, options_.validation_steps);
    for (; left > 0; left -= batches_between_votes) {
      session_.together([&] { scores.add(objective_, *validation_, std::min(left, batches_between_votes)); });
      if (left <= batches_between_votes) break;
      const auto asks = session_.allreduce(torch::full({}, stop_() ? 1.0 : 0.0), ReduceOp::sum);
      stopped_in_validation_ = asks.item<double>() > 0;
      if (stopped_in_validation_) return std::nullopt;
    }
    return scores.reduce(session_);
  }

  void end_epoch(const EpochResult& result) {
    const auto usage = meter_.gather();
    ended_early_ = on_rank_0(leads() && history_.add(result, usage));
    // Before the checkpoint, because a later start leaves out the epochs after its checkpoint, but
    // cannot add one.
    if (leads()) {
      try {
        history_.publish();
      } catch (const Error& error) {  // On a full disk, training goes on.
        log_warning("the history of epoch {} is not kept yet: {}", result.epoch, error.what());
      }
    }
    save(score_of(result));
  }

  bool on_rank_0(bool value) {
    session_.internals().communicator().broadcast("end", &value, sizeof value, 0);
    return value;
  }

  void save(double score) {
    await_writer(session_, store_.get());
    share_buffers();
    const Span span(session_.timeline(), Category::checkpoint, "snapshot");
    auto builder = leads() ? store_->builder() : SnapshotBuilder();
    trainer_.save(builder);
    saved_step_ = trainer_.steps_done();
    if (!leads()) return;
    auto snapshot = builder.finish();
    history_.describe(snapshot, score);
    store_->save(std::move(snapshot));
  }

  // The result of the run: the model of the last epoch or of the best one.
  void publish() {
    session_.together([&] {
      if (!leads()) return;
      auto& model = objective_.model();
      if (options_.keep_best) take_best();
      model.train(false);
      model.save_state(history_.record().folder / "state.h5");
      model.save(history_.record().folder / "model.pt");
      history_.finish();
    });
  }

  void take_best() {
    std::optional<CheckpointInfo> best;
    for (auto& info : list_checkpoints(checkpoints()))
      if (!std::isnan(info.score) && (!best || info.score < best->score)) best = std::move(info);
    auto& module = objective_.model().module();
    if (best) load_model(read_checkpoint(best->file, memory_of(module)), module);
  }

  Session& session_;
  const EstimatorOptions& options_;
  Objective& objective_;
  const std::function<bool()>& stop_;
  FitHistory history_;  // Used on rank 0, except for its folder.
  EpochTrainer trainer_;
  std::optional<TableReader> validation_;
  std::unique_ptr<CheckpointStore> store_;  // On rank 0.
  std::int64_t saved_step_ = -1;
  bool ended_early_ = false, stopped_in_validation_ = false;  // Equal on all ranks.
  ResourceMeter meter_;
};

RunFacts facts_of(Session& session, const EstimatorOptions& options, const FitRecord& record,
                  ScriptModel& model) {
  RunFacts facts;
  facts.ranks = session.size();
  facts.hosts = session.hosts();
  facts.device = "cpu";
  facts.program = "farandole fit";
  facts.global_batch = options.batch * options.accumulate * session.size();
  facts.config = exact_json_text(record.options);
  facts.threads = torch::get_num_threads();
  facts.cores = session.node_cores();
  if (const auto memory = job_memory_bytes()) facts.memory_mib = *memory >> 20;
  facts.versions = library_versions();
  facts.between_nodes = session.between_nodes();
  facts.parameters = 0;
  for (const auto& parameter : model.module().parameters()) *facts.parameters += parameter.numel();
  return facts;
}

}  // namespace

ExitCode fit_on_rank(Session& session, const EstimatorOptions& options, const std::string& files,
                     const std::function<bool()>& stop, std::string& run) {
  std::shared_ptr<const DataTable> table;
  std::unique_ptr<Objective> objective;
  FitRecord record;
  std::string folder;
  std::optional<RunDirectory> directory;
  session.together([&] {
    table = open_table(files);
    objective = std::make_unique<Objective>(options.model, *table, options);
    check_objective(*objective, *table, options, session.size());
  });
  session.together([&] {
    if (session.rank() != 0) return;
    record = open_fit(options, files);
    directory.emplace(record.folder);
    session.internals().take_lease(record.folder);
    folder = record.folder.string();
    run = record.id;
  });
  session.broadcast(folder);
  session.broadcast(run);
  record.folder = folder;
  session.start_recording({.run_dir = record.folder});
  Fit fit(session, options, *table, *objective, record, stop);
  const bool resumed = fit.resume();
  const auto& trainer = fit.trainer();
  const bool prints = session.rank() == 0 && options.verbose > 0;
  if (prints) {
    fmt::print("{} {} on {} rank{}: {} rows, {} of them for validation\n", resumed ? "continuing" : "fitting",
               folder, session.size(), session.size() == 1 ? "" : "s", table->rows(), fit.validation_rows());
    if (resumed) fmt::print("continuing from step {} of {}\n", trainer.steps_done(), trainer.total_steps());
    std::fflush(stdout);
  }
  if (directory)
    directory->started(facts_of(session, options, record, objective->model()), trainer.steps_done());
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
  if (!prints) return result;
  fmt::print("\n{}\n", resources);
  if (result == ExitCode::preempted)
    fmt::print("stop requested: saved at step {} of {}; the same command continues from there\n",
               trainer.steps_done(), trainer.total_steps());
  else
    fmt::print("the model is {}\n", (record.folder / "model.pt").string());
  return result;
}

}  // namespace farandole
