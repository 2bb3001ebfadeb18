#include "farandole/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "farandole/base/clock.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/log.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/job/run/run_directory.h"
#include "farandole/train/replica_check.h"
#include "farandole/train/run/checkpoint_schedule.h"
#include "farandole/train/session_internals.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

LearningRate::Schedule schedule_of(const std::string& name) {
  using Schedule = LearningRate::Schedule;
  if (name == "step") return Schedule::step;
  if (name == "cosine") return Schedule::cosine;
  if (name == "polynomial") return Schedule::polynomial;
  return name == "one_cycle" ? Schedule::one_cycle : Schedule::constant;
}

LearningRate learning_rate(const LoopOptions& options, int ranks, std::int64_t epoch_steps) {
  LearningRate rate;
  rate.base = options.lr;
  rate.world_size = ranks;
  rate.scale = options.scale_lr;
  rate.warmup_steps = options.warmup_steps;
  rate.schedule = schedule_of(options.schedule);
  rate.step_size = options.lr_step_epochs * epoch_steps;
  rate.gamma = options.lr_gamma;
  return rate;
}

DistributedOptimizerOptions optimizer_options(const LoopOptions& o, std::function<bool()> stop_requested) {
  DistributedOptimizerOptions result;
  result.stop_requested = std::move(stop_requested);
  result.backward_passes_per_step = o.accumulate;
  if (o.clip_norm > 0) result.clip_norm = o.clip_norm;
  result.on_nonfinite = o.on_nonfinite == "stop" ? OnNonFinite::stop : OnNonFinite::skip;
  if (o.precision == "float16") result.loss_scaling.emplace();
  result.compression = parse_compression(o.compression);
  result.synchronization = parse_synchronization(o.synchronize);
  result.shard = parse_shard(o.shard);
  result.tune = !o.bucket_mb;
  if (o.bucket_mb) result.buckets.bytes = static_cast<std::size_t>(*o.bucket_mb * 1024 * 1024);
  return result;
}

DistributedOptimizer::NamedParameters trained_parameters_of(const torch::nn::Module& module) {
  DistributedOptimizer::NamedParameters named;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) named.insert(item.key(), item.value());
  return named;
}

// Writes RUN/tuned-N-ranks.ini and returns a line that describes the result.
std::string keep_tuned_plan(const std::filesystem::path& run_dir, int ranks, const TunedPlan& plan) {
  const double mib = static_cast<double>(plan.bucket_bytes) / (1024 * 1024);
  const auto measured = plan.steps == 0
                            ? std::string("there are too few gradients for more than one bucket plan")
                            : fmt::format("{:.2f} ms per step, {:.2f} with the default, measured in {} steps",
                                          plan.milliseconds, plan.default_milliseconds, plan.steps);
  const auto file = tuned_profile(run_dir, ranks);
  write_file_atomically(file, fmt::format("# Found by --bucket-mb auto on {} ranks: {}.\nbucket-mb={:g}\n",
                                          ranks, measured, mib));
  return fmt::format("buckets of {:g} MiB: {}; written to {}", mib, measured, file.string());
}

}  // namespace

Trainer::Trainer(Session& session, const LoopOptions& options, std::string config, TrainingData& data,
                 Objective& objective, std::function<bool()> stop_requested)
    : session_(session),
      options_(options),
      precision_(parse_precision(options.precision)),
      data_(data),
      objective_(objective),
      module_(objective.module()),
      stop_requested_(std::move(stop_requested)),
      inner_(make_optimizer({options.optimizer, options.lr, options.momentum, options.weight_decay},
                            trained_parameters_of(module_).values())),
      optimizer_(session, *inner_, trained_parameters_of(module_),
                 optimizer_options(options, [this] { return failed_ || stop_requested_(); })),
      tracked_(module_, *inner_),
      run_(session,
           {options.run_dir, CheckpointInterval::parse(options.checkpoint_every), options.mtbf,
            options.checkpoint_keep, options.checkpoint_keep_every, options.log_steps, std::move(config),
            "lower --lr, or limit the gradients with --clip-norm", options.tensorboard, options.prometheus, 0,
            options.peak_tflops},
           tracked_,
           {[this] { settle(); }, [this](SnapshotBuilder& builder) { return data_.save(builder); },
            stop_requested_}),
      loss_(torch::zeros({}, torch::dtype(torch::kFloat64).device(session.device()))) {
  tracked_.scalers = {optimizer_.loss_scaler()};
  round_products(precision_);
  session_.together([&] { data_.begin_epoch(0); });
  rate_ = learning_rate(options, session.size(), steps_in(data_.passes().whole));
  schedule_rates();
  session_.broadcast(module_);
  // Parameters must be equal on all ranks, and dropout must differ.
  torch::manual_seed(options.seed + 1 + static_cast<std::uint64_t>(session.rank()));
}

std::int64_t Trainer::steps_in(std::int64_t passes) const {
  return (passes + options_.accumulate - 1) / options_.accumulate;
}

// The learning rate continues where it was in the schedule, also with another number of ranks or batch size.
// The schedule counts the steps of this size up to the end of the last epoch, or if --steps ends the run,
// those of any size.
void Trainer::schedule_rates() {
  const auto passes = data_.passes();
  const auto epoch_steps = steps_in(passes.whole), left = steps_in(passes.left);
  const auto epochs = options_.epochs - run_.position.epoch;
  auto remaining = epochs > 0 ? left + (epochs - 1) * epoch_steps : 0;
  if (options_.steps > 0)
    remaining = std::clamp<std::int64_t>(options_.steps - run_.position.step, 0, remaining);
  total_steps_ = run_.position.step + remaining;
  const bool ended_by_steps = options_.steps > 0 && total_steps_ == options_.steps;
  const auto scheduled = ended_by_steps ? run_.position.step
                         : epochs > 0   ? (run_.position.epoch + 1) * epoch_steps - left
                                        : run_.position.epoch * epoch_steps;
  schedule_offset_ = scheduled - run_.position.step;
  rate_.total_steps = scheduled + remaining;
}

void Trainer::resume(const Position& position, Snapshot* snapshot) {
  data_.restore(position, snapshot);
  run_.resume(position, snapshot);
  session_.together([&] { data_.begin_epoch(position.epoch); });
  schedule_rates();
}

void Trainer::begin() {
  run_.begin();
  if (auto* const metrics = run_.metrics())
    log_.emplace(RunLog{*metrics, Progress(run_.position.step, total_steps_, options_.shows_progress)});
  epoch_began_ns_ = now_ns();
  ended_ = !objective_.begin(run_.position);
}

// If the job stops at the end of an epoch, the epoch is not over: the next start has no samples left in it,
// and evaluates it. If --steps has ended the training, nothing is left for another start. So what was trained
// is saved first, and then the evaluation is done.
ExitCode Trainer::run() {
  begin();
  while (!finished() && !stopping_) {
    train_epoch();
    if (stopping_ && !limit_reached()) break;
    if (stopping_) run_.save();
    if (!end_epoch()) break;
  }
  if (log_) log_->progress.finish();
  run_.close();
  if (!finished()) return ExitCode::preempted;
  session_.together([&] {
    if (log_) objective_.finish(*log_);
  });
  return ExitCode::done;
}

void Trainer::train_epoch() {
  while (data_.passes().left > 0 && !all_steps_done() && !stopping_) {
    step();
    // If ranks average parameters, they also do so at a save, and if the model has running statistics, they
    // share them. Such a save is never postponed: the result must not depend on the speed of the disk.
    const bool changes_training = averages_parameters() || run_.has_buffers();
    if (data_.passes().left == 0 || all_steps_done() || !run_.due(!changes_training)) continue;
    changes_training ? run_.save() : run_.take_snapshot();
  }
  session_.set_step(-1);
  rethrow_error();
}

// One optimizer step: load the batches, run forward and backward (buckets are reduced as soon as they
// are full), wait, update. A GPU gets the next batch while it computes.
void Trainer::step() {
  Timeline& timeline = session_.timeline();
  session_.set_step(run_.position.step);
  ++run_.position.step;
  torch::Tensor loss;
  std::optional<NonFiniteGradient> nonfinite;
  {
    const Span whole(timeline, Category::step, "step");
    const auto passes = std::min<std::int64_t>(options_.accumulate, data_.passes().left);
    for (auto& group : inner_->param_groups()) group.options().set_lr(rate_of(run_.position.step - 1));
    try {
      if (options_.optimizer == "lbfgs") {
        run_.hold();
        optimizer_.step([&] {
          const auto again = add_gradients(passes, loss.defined());
          if (!loss.defined()) loss = again;
          return session_.allreduce(again);
        });
      } else {
        // Not in the last step of an epoch, which may have fewer samples, and not for L-BFGS,
        // whose steps differ.
        if (data_.passes().left > passes || data_.passes().whole <= passes) run_.watch_operators();
        loss = add_gradients(passes, false);
        run_.operators_done();
        run_.hold();
        optimizer_.step();
      }
      nonfinite = optimizer_.skipped();
    } catch (const NonFiniteGradient& gradient) {
      nonfinite = gradient;
    }
    stopping_ = optimizer_.stopping();
  }
  if (stopping_) rethrow_error();
  if (loss.defined()) loss_ = loss;
  bool trained = false;
  if (nonfinite) {
    handle_nonfinite(*nonfinite, loss);
  } else if (optimizer_.overflowed()) {
    tell_skipped(fmt::format("a gradient overflows float16; the loss is now multiplied by {:g}",
                             optimizer_.loss_scale()));
  } else if (has_samples_) {
    objective_.add_loss(loss);
    skipped_in_a_row_ = 0;
    trained = true;
  }
  run_.count_step({{"loss", loss}}, trained);
  if (due(options_.check_replicas, run_.position.step)) {
    const Span span(timeline, Category::other, "check replicas");
    check_replicas(session_, module_);
  }
  report();
}

// Forward and backward of a step. Returns this rank's loss. L-BFGS does it several times with
// the same samples.
torch::Tensor Trainer::add_gradients(std::int64_t passes, bool again) {
  Timeline& timeline = session_.timeline();
  {
    const Span span(timeline, Category::optimizer, "zero gradients");
    optimizer_.zero_grad();
  }
  auto sum = torch::zeros_like(loss_);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    if (!again) {
      const bool has_samples = data_.load(pass, passes, [this](const auto& work) { guard(work); });
      has_samples_ = has_samples || (pass > 0 && has_samples_);
    }
    torch::Tensor loss;
    guard([&] {
      const Span span(timeline, Category::forward, "forward");
      const Autocast autocast(precision_, session_.device());
      loss = objective_.loss(pass);
    });
    if (loss.defined()) {
      const Span span(timeline, Category::backward, "backward");
      optimizer_.scale(loss).backward();
      sum += loss.detach();
    }
    if (pass + 1 < passes || !all_steps_done()) data_.load_ahead();
  }
  return sum;
}

// Keeps the first error of this rank's samples. The others learn it from the reduction of the gradients, as a
// request to stop.
void Trainer::guard(const std::function<void()>& work) {
  if (failed_) return;
  try {
    work();
  } catch (const Error&) {
    error_ = std::current_exception();
    failed_ = true;
  }
}

void Trainer::rethrow_error() {
  session_.together([&] {
    if (failed_) std::rethrow_exception(error_);
  });
}

// Between two lines of metrics, the bar shows the last known values.
void Trainer::report() {
  run_.report(all_steps_done(), rate_of(run_.position.step - 1), static_cast<double>(global_batch()));
  if (!log_) return;
  keep_tuning();
  if (const auto loss = run_.last_loss())
    log_->progress.update(
        {run_.position.step, run_.position.epoch, *loss, run_.samples_per_s(), run_.rate()});
}

void Trainer::keep_tuning() {
  if (options_.bucket_mb || tuning_kept_ || !optimizer_.tuned()) return;
  tuning_kept_ = true;
  try {
    log_->progress.say(keep_tuned_plan(options_.run_dir, session_.size(), *optimizer_.tuned()));
  } catch (const Error& error) {  // On a full disk, training goes on.
    log_warning("the measured bucket size is not kept: {}", error.what());
  }
}

bool Trainer::end_epoch() {
  const bool whole = data_.passes().left == 0;
  const auto epoch = run_.position.epoch + (whole ? 1 : 0);
  run_.log_resources(epoch);
  optimizer_.average_parameters();
  run_.share_buffers();
  const auto begin_ns = now_ns();
  const auto result = objective_.end_epoch(
      {epoch, run_.position.step, rate_of(run_.position.step - 1), seconds_since(epoch_began_ns_)},
      log_ ? &*log_ : nullptr, [this] { return must_stop(); });
  run_.leave_out(now_ns() - begin_ns);
  if (!result) return false;
  run_.scored(result->score);
  ended_ = result->ends_training || all_steps_done();
  run_.position.epoch = epoch;
  if (whole) session_.together([&] { data_.begin_epoch(epoch); });
  epoch_began_ns_ = now_ns();
  if (!stopping_) stopping_ = run_.any_rank_asks_to_stop();
  const auto every = CheckpointInterval::parse(options_.checkpoint_every).epochs();
  if (options_.saves_each_epoch || due(every, epoch) || finished() || stopping_) {
    run_.save();
  } else if (run_.due(!averages_parameters())) {
    averages_parameters() ? run_.save() : run_.take_snapshot();
  }
  return true;
}

bool Trainer::must_stop() {
  if (stopping_) return false;  // What was trained is saved.
  stopping_ = run_.any_rank_asks_to_stop();
  if (!stopping_ || !limit_reached()) return stopping_;
  run_.save();
  return false;
}

// On a GPU, the result of the last step is not known before.
void Trainer::settle() {
  try {
    optimizer_.confirm();
  } catch (const NonFiniteGradient& gradient) {
    handle_nonfinite(gradient, loss_);
  }
  optimizer_.average_parameters();
  optimizer_.average_state();
}

void Trainer::handle_nonfinite(const NonFiniteGradient& gradient, const torch::Tensor& loss) {
  constexpr int most_in_a_row = 10;
  const auto reason = explain(gradient, loss);
  if (options_.on_nonfinite == "rollback") return roll_back(reason);
  std::string remedy;
  if (options_.on_nonfinite == "stop")
    remedy =
        "lower --lr, limit the gradients with --clip-norm, or go on with --on-nonfinite skip or rollback";
  else if (++skipped_in_a_row_ == most_in_a_row)
    remedy = fmt::format("this is the {}th step in a row; lower --lr, or continue from an earlier checkpoint",
                         most_in_a_row);
  if (!remedy.empty()) {
    const Error error(fmt::format("step {}: {}; {}", run_.position.step, reason, remedy));
    if (averages_parameters()) throw error;
    session_.together([&] { throw error; });
  }
  tell_skipped(reason);
}

void Trainer::tell_skipped(const std::string& reason) {
  session_.timeline().instant(session_.timeline().intern("skipped step"));
  if (!leads() && averages_parameters()) log_warning("step {} is skipped: {}", run_.position.step, reason);
  if (!log_) return;
  log_->progress.say(fmt::format("step {} is skipped: {}", run_.position.step, reason));
  log_->metrics.write(MetricsLog::SkippedStep{run_.position.step, run_.position.epoch, reason});
}

std::string Trainer::explain(const NonFiniteGradient& gradient, const torch::Tensor& loss) {
  const auto ranks = ranks_where(!std::isfinite(loss.item<double>()));
  return fmt::format("{}; the loss is {}", gradient.what(),
                     ranks.empty() ? "finite" : "not finite on " + describe_ranks(ranks));
}

std::vector<int> Trainer::ranks_where(bool here) {
  if (averages_parameters()) return here ? std::vector{session_.rank()} : std::vector<int>();
  return run_.ranks_where(here);
}

// The samples of the failed step and those since the checkpoint are not trained again: they would fail again.
void Trainer::roll_back(const std::string& reason) {
  constexpr int most_in_a_row = 3;
  const Span span(session_.timeline(), Category::checkpoint, "roll back");
  std::optional<Snapshot> snapshot;
  run_.await_writer();
  session_.together([&] {
    if (!leads()) return;
    auto found = read_newest_checkpoint(options_.run_dir / "checkpoints", memory_of(tracked_));
    if (!found)
      throw Error(fmt::format(
          "step {}: {}; there is no checkpoint yet to return to; lower --lr, or save checkpoints more often",
          run_.position.step, reason));
    snapshot = std::move(found->second);
    rollbacks_in_a_row_ = snapshot->step == rolled_back_to_ ? rollbacks_in_a_row_ + 1 : 1;
    rolled_back_to_ = snapshot->step;
    if (rollbacks_in_a_row_ > most_in_a_row)
      throw Error(fmt::format(
          "step {}: {}; the job has returned to the checkpoint of step {} {} times; lower --lr, or "
          "continue from an earlier checkpoint",
          run_.position.step, reason, snapshot->step, most_in_a_row));
    log_->progress.say(fmt::format("step {}: {}; the parameters are those of step {} again",
                                   run_.position.step, reason, snapshot->step));
    log_->metrics.write(
        MetricsLog::Rollback{run_.position.step, run_.position.epoch, snapshot->step, reason});
  });
  restore(session_, tracked_, snapshot ? &*snapshot : nullptr);
}

RunFacts Trainer::facts() const {
  auto facts = run_.facts();
  facts.global_batch = global_batch();
  facts.total_steps = total_steps_;
  facts.bucket_mb = options_.bucket_mb;
  return facts;
}

bool is_at_end(const LoopOptions& options, const Position& position) {
  return position.epoch >= options.epochs || (options.steps > 0 && position.step >= options.steps);
}

ExitCode run_to_end(Session& session, Trainer& trainer, std::optional<RunDirectory>& run, bool prints) {
  auto result = ExitCode::done;
  try {
    result = trainer.run();
  } catch (const Error& error) {
    if (run) run->ended(static_cast<int>(error.exit_code()));
    throw;
  }
  const auto resources = trainer.describe_resources(), rate = trainer.describe_rate();
  session.publish_timeline();
  if (run) run->ended(static_cast<int>(result));
  if (!prints || session.rank() != 0) return result;
  fmt::print("\n{}\n", resources);
  if (!rate.empty()) fmt::print("model: {}\n", rate);
  if (result == ExitCode::preempted)
    fmt::print("stop requested: saved at step {} of {}; the same command continues from there\n",
               trainer.steps_done(), trainer.total_steps());
  return result;
}

std::filesystem::path tuned_profile(const std::filesystem::path& run_dir, int ranks) {
  return run_dir / fmt::format("tuned-{}-ranks.ini", ranks);
}

}  // namespace farandole
