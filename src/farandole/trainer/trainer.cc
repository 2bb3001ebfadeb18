#include "farandole/trainer/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "farandole/base/clock.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/log.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/nccl/nccl_communicator.h"
#include "farandole/launch/process/memory.h"
#include "farandole/train/replica_check.h"
#include "farandole/train/run/run_directory.h"
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
      config_(std::move(config)),
      precision_(parse_precision(options.precision)),
      data_(data),
      objective_(objective),
      module_(objective.module()),
      stop_requested_(std::move(stop_requested)),
      inner_(make_optimizer({options.optimizer, options.lr, options.momentum, options.weight_decay},
                            trained_parameters_of(module_).values())),
      optimizer_(session, *inner_, trained_parameters_of(module_),
                 optimizer_options(options, [this] { return failed_ || stop_requested_(); })),
      loss_sum_(torch::zeros({}, torch::dtype(torch::kFloat64).device(session.device()))),
      meter_(session) {
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
  const auto epochs = options_.epochs - position_.epoch;
  auto remaining = epochs > 0 ? left + (epochs - 1) * epoch_steps : 0;
  if (options_.steps > 0) remaining = std::clamp<std::int64_t>(options_.steps - position_.step, 0, remaining);
  total_steps_ = position_.step + remaining;
  const bool ended_by_steps = options_.steps > 0 && total_steps_ == options_.steps;
  const auto scheduled = ended_by_steps ? position_.step
                         : epochs > 0   ? (position_.epoch + 1) * epoch_steps - left
                                        : position_.epoch * epoch_steps;
  schedule_offset_ = scheduled - position_.step;
  rate_.total_steps = scheduled + remaining;
}

void Trainer::resume(const Position& position, Snapshot* snapshot) {
  data_.restore(position, snapshot);
  restore(session_, module_, *inner_, snapshot);
  if (auto* const scaler = optimizer_.loss_scaler()) restore_loss_scale(session_, *scaler, snapshot);
  position_ = position;
  session_.together([&] { data_.begin_epoch(position_.epoch); });
  schedule_rates();
  resumed_ = true;
  if (snapshot == nullptr) return;
  const bool known = !std::isnan(snapshot->best_score);  // Not in files of format version 1.
  best_score_ = known ? snapshot->best_score : snapshot->score;
  best_step_ = known ? snapshot->best_step : snapshot->step;
}

void Trainer::begin() {
  checkpoints_.emplace(session_, options_, position_.step, resumed_);
  session_.together([&] {
    if (!leads()) return;
    log_.emplace(RunLog{MetricsLog(options_.run_dir / "metrics.jsonl", position_.step),
                        Progress(position_.step, total_steps_, options_.shows_progress)});
    reported_ns_ = now_ns();
  });
  epoch_began_ns_ = now_ns();
  ended_ = !objective_.begin(position_);
}

// If the job stops at the end of an epoch, the epoch is not over: the next start has no samples left in it,
// and evaluates it. If --steps has ended the training, nothing is left for another start. So what was trained
// is saved first, and then the evaluation is done.
ExitCode Trainer::run() {
  begin();
  while (!finished() && !stopping_) {
    train_epoch();
    if (stopping_ && !limit_reached()) break;
    if (stopping_) save(score_unknown);
    if (!end_epoch()) break;
  }
  if (checkpoints_->saved_step() < position_.step) save(score_unknown);
  if (log_) log_->progress.finish();
  checkpoints_->wait();
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
    const bool changes_training = averages_parameters() || !module_.buffers().empty();
    if (data_.passes().left == 0 || all_steps_done() || !checkpoints_->due(position_.step, !changes_training))
      continue;
    changes_training ? save(score_unknown) : take_snapshot(score_unknown);
  }
  session_.set_step(-1);
  rethrow_error();
}

// One optimizer step: load the batches, run forward and backward (buckets are reduced as soon as they
// are full), wait, update. A GPU gets the next batch while it computes.
void Trainer::step() {
  Timeline& timeline = session_.timeline();
  session_.set_step(position_.step);
  ++position_.step;
  torch::Tensor loss;
  std::optional<NonFiniteGradient> nonfinite;
  {
    const Span whole(timeline, Category::step, "step");
    const auto passes = std::min<std::int64_t>(options_.accumulate, data_.passes().left);
    for (auto& group : inner_->param_groups()) group.options().set_lr(rate_of(position_.step - 1));
    try {
      if (options_.optimizer == "lbfgs") {
        checkpoints_->hold();
        optimizer_.step([&] {
          const auto again = add_gradients(passes, loss.defined());
          if (!loss.defined()) loss = again;
          return session_.allreduce(again);
        });
      } else {
        loss = add_gradients(passes, false);
        checkpoints_->hold();
        optimizer_.step();
      }
      nonfinite = optimizer_.skipped();
    } catch (const NonFiniteGradient& gradient) {
      nonfinite = gradient;
    }
    stopping_ = optimizer_.stopping();
  }
  if (stopping_) rethrow_error();
  ++steps_;
  if (nonfinite) {
    handle_nonfinite(*nonfinite, loss);
  } else if (optimizer_.overflowed()) {
    tell_skipped(fmt::format("a gradient overflows float16; the loss is now multiplied by {:g}",
                             optimizer_.loss_scale()));
  } else if (has_samples_) {
    objective_.add_loss(loss);
    loss_sum_ += loss;
    ++loss_steps_;
    skipped_in_a_row_ = 0;
  }
  if (due(options_.check_replicas, position_.step)) {
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
  auto sum = torch::zeros_like(loss_sum_);
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

// At the first step and every log_steps steps, all ranks get the mean loss, and it is written to
// metrics.jsonl. Between these steps the bar shows the last known values.
void Trainer::report() {
  if (position_.step == 1 || due(options_.log_steps, position_.step) || all_steps_done()) {
    auto sums =
        torch::stack({loss_sum_.cpu(), torch::tensor(static_cast<double>(loss_steps_), torch::kFloat64)});
    session_.allreduce_(sums, ReduceOp::sum);
    const bool trained = sums[1].item<double>() > 0;
    if (trained) last_loss_ = (sums[0] / sums[1]).item<double>();
    if (trained && !std::isfinite(last_loss_)) {  // True on all ranks, because all have the same loss.
      const auto ranks = ranks_where(!std::isfinite(loss_sum_.item<double>()));
      session_.together([&] {
        throw Error(fmt::format(
            "the loss is not finite up to step {} on {}; lower --lr, or limit the gradients with --clip-norm",
            position_.step, describe_ranks(ranks)));
      });
    }
    if (log_ && trained) {
      const double step_s = seconds_since(reported_ns_) / static_cast<double>(steps_);
      samples_per_s_ = static_cast<double>(global_batch()) / step_s;
      log_->metrics.write(MetricsLog::Training{position_.step, position_.epoch, last_loss_,
                                               rate_of(position_.step - 1), samples_per_s_, step_s * 1e3});
    }
    loss_sum_.zero_();
    loss_steps_ = steps_ = 0;
    reported_ns_ = now_ns();
  }
  if (!log_) return;
  keep_tuning();
  const bool known = std::isfinite(last_loss_);  // Not until the first line of metrics.
  if (known) log_->progress.update({position_.step, position_.epoch, last_loss_, samples_per_s_});
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
  const auto epoch = position_.epoch + (whole ? 1 : 0);
  const auto usage = meter_.gather();
  if (log_) log_->metrics.write(MetricsLog::Resources{position_.step, epoch, usage});
  optimizer_.average_parameters();
  share_buffers();
  const auto begin_ns = now_ns();
  const auto result = objective_.end_epoch(
      {epoch, position_.step, rate_of(position_.step - 1), seconds_since(epoch_began_ns_)},
      log_ ? &*log_ : nullptr, [this] { return must_stop(); });
  reported_ns_ += now_ns() - begin_ns;  // The rate is that of the steps.
  if (!result) return false;
  const double score = result->score;
  if (score < best_score_ || (std::isnan(best_score_) && !std::isnan(score))) {
    best_score_ = score;
    best_step_ = position_.step;
  }
  ended_ = result->ends_training || all_steps_done();
  position_.epoch = epoch;
  if (whole) session_.together([&] { data_.begin_epoch(epoch); });
  epoch_began_ns_ = now_ns();
  if (!stopping_) stopping_ = any_rank_asks_to_stop();
  if (options_.saves_each_epoch || due(options_.checkpoint_every.epochs(), epoch) || finished() ||
      stopping_) {
    save(score);
  } else if (checkpoints_->due(position_.step, !averages_parameters())) {
    averages_parameters() ? save(score) : take_snapshot(score);
  }
  return true;
}

bool Trainer::any_rank_asks_to_stop() {
  auto requests = torch::full({}, stop_requested_() ? 1.0 : 0.0, torch::kFloat64);
  session_.allreduce_(requests, ReduceOp::sum);
  return requests.item<double>() > 0;
}

bool Trainer::must_stop() {
  if (stopping_) return false;  // What was trained is saved.
  stopping_ = any_rank_asks_to_stop();
  if (!stopping_ || !limit_reached()) return stopping_;
  save(score_unknown);
  return false;
}

// Batch normalization has running statistics of its own on each rank. Those of rank 0 are evaluated, saved
// and used from then on, so that a resumed run gives the same results.
void Trainer::share_buffers() {
  for (auto& buffer : module_.buffers()) session_.broadcast_(buffer);
}

void Trainer::save(double score) {
  checkpoints_->await_writer();
  take_snapshot(score);
}

void Trainer::take_snapshot(double score) {
  const Span span(session_.timeline(), Category::checkpoint, "snapshot");
  confirm();
  optimizer_.average_parameters();
  optimizer_.average_state();
  share_buffers();
  checkpoints_->save(
      position_.step,
      [&](SnapshotBuilder& builder, DeviceCopies* copies) {
        position_.samples = data_.save(builder);
        capture(session_, module_, *inner_, position_, builder, copies);
        if (const auto* const scaler = optimizer_.loss_scaler(); scaler != nullptr && leads())
          add_loss_scale(builder, *scaler);
      },
      [&](Snapshot& snapshot) {
        snapshot.config = config_;
        snapshot.versions = json_text(library_versions());
        snapshot.score = score;
        snapshot.best_score = best_score_;
        snapshot.best_step = best_step_;
      });
}

// On a GPU, the result of the last step is not known before.
void Trainer::confirm() {
  try {
    optimizer_.confirm();
  } catch (const NonFiniteGradient& gradient) {
    handle_nonfinite(gradient, loss_sum_);
  }
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
    const Error error(fmt::format("step {}: {}; {}", position_.step, reason, remedy));
    if (averages_parameters()) throw error;
    session_.together([&] { throw error; });
  }
  tell_skipped(reason);
}

void Trainer::tell_skipped(const std::string& reason) {
  session_.timeline().instant(session_.timeline().intern("skipped step"));
  if (!leads() && averages_parameters()) log_warning("step {} is skipped: {}", position_.step, reason);
  if (!log_) return;
  log_->progress.say(fmt::format("step {} is skipped: {}", position_.step, reason));
  log_->metrics.write(MetricsLog::SkippedStep{position_.step, position_.epoch, reason});
}

std::string Trainer::explain(const NonFiniteGradient& gradient, const torch::Tensor& loss) {
  const auto ranks = ranks_where(!std::isfinite(loss.item<double>()));
  return fmt::format("{}; the loss is {}", gradient.what(),
                     ranks.empty() ? "finite" : "not finite on " + describe_ranks(ranks));
}

std::vector<int> Trainer::ranks_where(bool here) {
  if (averages_parameters()) return here ? std::vector{session_.rank()} : std::vector<int>();
  const auto all = session_.all_gather(torch::full({1}, here));
  std::vector<int> ranks;
  for (int r = 0; r < session_.size(); ++r)
    if (all[r].item<bool>()) ranks.push_back(r);
  return ranks;
}

// The samples of the failed step and those since the checkpoint are not trained again: they would fail again.
void Trainer::roll_back(const std::string& reason) {
  constexpr int most_in_a_row = 3;
  const Span span(session_.timeline(), Category::checkpoint, "roll back");
  std::optional<Snapshot> snapshot;
  checkpoints_->await_writer();
  session_.together([&] {
    if (!leads()) return;
    auto found = read_newest_checkpoint(options_.run_dir / "checkpoints", memory_of(module_));
    if (!found)
      throw Error(fmt::format(
          "step {}: {}; there is no checkpoint yet to return to; lower --lr, or save checkpoints more often",
          position_.step, reason));
    snapshot = std::move(found->second);
    rollbacks_in_a_row_ = snapshot->step == rolled_back_to_ ? rollbacks_in_a_row_ + 1 : 1;
    rolled_back_to_ = snapshot->step;
    if (rollbacks_in_a_row_ > most_in_a_row)
      throw Error(fmt::format(
          "step {}: {}; the job has returned to the checkpoint of step {} {} times; lower --lr, or "
          "continue from an earlier checkpoint",
          position_.step, reason, snapshot->step, most_in_a_row));
    log_->progress.say(fmt::format("step {}: {}; the parameters are those of step {} again", position_.step,
                                   reason, snapshot->step));
    log_->metrics.write(MetricsLog::Rollback{position_.step, position_.epoch, snapshot->step, reason});
  });
  restore(session_, module_, *inner_, snapshot ? &*snapshot : nullptr);
}

RunFacts Trainer::facts() const {
  RunFacts facts;
  facts.ranks = session_.size();
  facts.hosts = session_.hosts();
  facts.gpus = session_.internals().gpus;
  facts.gpu_topology = session_.internals().gpu_topology;
  facts.device = session_.device().is_cuda() ? "cuda" : "cpu";
  facts.global_batch = global_batch();
  facts.parameters = 0;
  for (const auto& parameter : module_.parameters()) *facts.parameters += parameter.numel();
  facts.total_steps = total_steps_;
  facts.config = config_;
  facts.bucket_mb = options_.bucket_mb;
  facts.threads = torch::get_num_threads();
  facts.cores = session_.node_cores();
  if (const auto memory = job_memory_bytes()) facts.memory_mib = *memory >> 20;
  facts.versions = library_versions();
  facts.between_nodes = session_.between_nodes();
  if (const auto& gpu = session_.internals().gpu; gpu && !gpu->shared)
    facts.versions["nccl"] = nccl_version();
  return facts;
}

bool is_at_end(const LoopOptions& options, const Position& position) {
  return position.epoch >= options.epochs || (options.steps > 0 && position.step >= options.steps);
}

std::optional<Position> share_position(Session& session, const std::optional<Snapshot>& start) {
  std::optional<Position> position;
  session.together([&] {
    if (start) position = position_of(*start);
  });
  std::array<std::int64_t, 4> numbers{position.has_value(), 0, 0, 0};
  if (position) numbers = {1, position->step, position->epoch, position->samples};
  session.internals().communicator().broadcast("position", numbers.data(), sizeof numbers, 0);
  if (numbers[0] != 0) position = {numbers[1], numbers[2], numbers[3]};
  return position;
}

ExitCode run_to_end(Session& session, Trainer& trainer, std::optional<RunDirectory>& run, bool prints) {
  auto result = ExitCode::done;
  try {
    result = trainer.run();
  } catch (const Error& error) {
    if (run) run->ended(static_cast<int>(error.exit_code()));
    throw;
  }
  const auto resources = trainer.describe_resources();
  session.publish_timeline();
  if (run) run->ended(static_cast<int>(result));
  if (!prints || session.rank() != 0) return result;
  fmt::print("\n{}\n", resources);
  if (result == ExitCode::preempted)
    fmt::print("stop requested: saved at step {} of {}; the same command continues from there\n",
               trainer.steps_done(), trainer.total_steps());
  return result;
}

std::filesystem::path tuned_profile(const std::filesystem::path& run_dir, int ranks) {
  return run_dir / fmt::format("tuned-{}-ranks.ini", ranks);
}

}  // namespace farandole
