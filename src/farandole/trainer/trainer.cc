#include "farandole/trainer/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <sstream>
#include <torch/optim.h>
#include <torch/utils.h>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/log.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/train/replica_check.h"
#include "farandole/train/run/run_directory.h"
#include "farandole/train/session_internals.h"
#include "farandole/train/torch_optimizers.h"
#include "farandole/trainer/models/gpt.h"

namespace farandole {
namespace {

DistributedOptimizerOptions optimizer_options(const TrainOptions& o, std::function<bool()> stop_requested) {
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

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Trainer::Trainer(Session& session, const TrainOptions& options, const DataSplit& data,
                 std::shared_ptr<Model> model, std::function<bool()> stop_requested)
    : session_(session),
      options_(options),
      precision_(parse_precision(options.precision)),
      data_(data),
      model_(std::move(model)),
      inner_(make_optimizer({options.optimizer, options.lr, options.momentum, options.weight_decay},
                            model_->parameters())),
      optimizer_(session, *inner_, model_->named_parameters(), optimizer_options(options, stop_requested)),
      stop_requested_(std::move(stop_requested)),
      sampler_(data.train->size(), session, {.shuffle = true, .drop_last = false, .seed = options.seed}),
      input_(session.device()),
      loss_sum_(torch::zeros({}, torch::dtype(torch::kFloat64).device(session.device()))),
      meter_(session) {
  round_products(precision_);
  rate_.base = options.lr;
  rate_.world_size = session.size();
  rate_.scale = options.scale_lr;
  rate_.warmup_steps = options.warmup_steps;
  rate_.schedule =
      options.schedule == "cosine" ? LearningRate::Schedule::cosine : LearningRate::Schedule::constant;
  start_at({});
  if (!options.checkpoint_every.within_epochs()) ask_at_ = std::numeric_limits<std::int64_t>::max();
  session_.broadcast(*model_);
  // Parameters must be equal on all ranks, and dropout must differ.
  torch::manual_seed(options.seed + 1 + static_cast<std::uint64_t>(session.rank()));
}

std::int64_t remaining_steps(const TrainOptions& options, const Position& position, std::int64_t samples,
                             int ranks) {
  const auto per_step = options.batch * options.accumulate * ranks;
  const auto epochs = options.epochs - position.epoch;
  if (epochs <= 0) return 0;
  const auto all =
      ceil_div(samples - position.samples, per_step) + (epochs - 1) * ceil_div(samples, per_step);
  return options.steps > 0 ? std::clamp<std::int64_t>(options.steps - position.step, 0, all) : all;
}

// The learning rate continues where it was in the schedule, also with another number of ranks or batch size.
// The schedule counts the steps of this size up to the end of the last epoch, or if --steps ends the run,
// those of any size.
void Trainer::start_at(const Position& position) {
  position_ = position;
  const auto samples = data_.train->size();
  const auto remaining = remaining_steps(options_, position, samples, session_.size());
  total_steps_ = position.step + remaining;
  const bool ended_by_steps = options_.steps > 0 && total_steps_ == options_.steps;
  const auto scheduled = ended_by_steps ? position.step
                                        : position.epoch * ceil_div(samples, global_batch()) +
                                              ceil_div(position.samples, global_batch());
  schedule_offset_ = scheduled - position.step;
  rate_.total_steps = scheduled + remaining;
}

ExitCode Trainer::run() {
  session_.together([&] {
    if (!leads()) return;
    store_ = std::make_unique<CheckpointStore>(
        CheckpointOptions{options_.run_dir / "checkpoints", options_.checkpoint_keep,
                          options_.checkpoint_keep_every,
                          [this] { return session_.internals().holds_lease(); }},
        session_.timeline());
    schedule_ = std::make_unique<CheckpointSchedule>(options_.checkpoint_every, options_.mtbf, position_.step,
                                                     seconds_since(0));
    if (const auto& gpu = session_.internals().gpu) copies_.emplace(*gpu, session_.device());
    metrics_ = std::make_unique<MetricsLog>(options_.run_dir / "metrics.jsonl", position_.step);
    progress_ = std::make_unique<Progress>(position_.step, total_steps());
    reported_ns_ = now_ns();
  });
  while (!finished() && !stopping_) {
    train_epoch();
    if (stopping_ && !finished()) break;
    if (stopping_) save(score_unknown);  // The evaluation may last longer than this job.
    const auto usage = meter_.gather();
    if (leads()) metrics_->write(MetricsLog::Resources{position_.step, position_.epoch, usage});
    optimizer_.average_parameters();
    const auto score = evaluate();
    if (!score) {
      --position_.epoch;
      position_.samples = data_.train->size();
      break;
    }
    if (due(options_.checkpoint_every.epochs(), position_.epoch) || finished() || stopping_)
      save(*score);
    else
      save_if_due(*score);
  }
  if (saved_step_ < position_.step) save(score_unknown);
  if (leads()) progress_->finish();
  await_writer(session_, store_.get());
  session_.together([&] {
    if (!leads()) return;
    if (finished()) show_sample();
    store_->wait();
  });
  return stopping_ && !finished() ? ExitCode::preempted : ExitCode::done;
}

// If the job stops at the end of an epoch, the epoch is not over: the next start has no samples left in it,
// and evaluates it.
void Trainer::train_epoch() {
  model_->train();
  sampler_.set_position(position_.epoch, position_.samples);
  BatchSequence batches(*data_.train, sampler_, options_.batch, input_, session_.timeline());
  while (batches.left() > 0 && !finished() && !stopping_) {
    step(batches);
    if (!finished() && batches.left() > 0) save_if_due(score_unknown);
  }
  session_.set_step(-1);
  if (batches.left() > 0 || (stopping_ && !finished())) return;
  ++position_.epoch;
  position_.samples = 0;
}

// One optimizer step: load the batches, run forward and backward (buckets are reduced as soon as they
// are full), wait, update. A GPU gets the next batch while it computes.
void Trainer::step(BatchSequence& batches) {
  Timeline& timeline = session_.timeline();
  session_.set_step(position_.step);
  ++position_.step;
  auto loss_of_step = torch::zeros_like(loss_sum_);
  std::optional<NonFiniteGradient> nonfinite;
  {
    const Span whole(timeline, Category::step, "step");
    const auto passes = std::min<std::int64_t>(options_.accumulate, batches.left());
    for (auto& group : inner_->param_groups()) group.options().set_lr(rate_of(position_.step - 1));
    {
      const Span span(timeline, Category::optimizer, "zero gradients");
      optimizer_.zero_grad();
    }
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      const auto [batch, weight] = batches.next();
      const double part = weight / static_cast<double>(passes);
      torch::Tensor loss;
      {
        const Span span(timeline, Category::forward, "forward");
        const Autocast autocast(precision_, session_.device());
        loss = model_->loss(model_->forward(batch.x), batch.y);
      }
      {
        const Span span(timeline, Category::backward, "backward");
        optimizer_.scale(part != 1 ? loss * part : loss).backward();
      }
      loss_of_step += loss.detach() * part;
      // On a CPU, nothing would be gained, and the analyzer looks in the same step for what made a rank late.
      if (input_.copies() && (pass + 1 < passes || !finished())) batches.prefetch();
    }
    if (copies_) copies_->hold();
    try {
      optimizer_.step();
      nonfinite = optimizer_.skipped();
    } catch (const NonFiniteGradient& gradient) {
      nonfinite = gradient;
    }
    stopping_ = optimizer_.stopping();
  }
  position_.samples = batches.seen();
  ++steps_;
  if (nonfinite) {
    handle_nonfinite(*nonfinite, loss_of_step);
  } else if (optimizer_.overflowed()) {
    tell_skipped(fmt::format("a gradient overflows float16; the loss is now multiplied by {:g}",
                             optimizer_.loss_scale()));
  } else {
    loss_sum_ += loss_of_step;
    ++loss_steps_;
    skipped_in_a_row_ = 0;
  }
  if (due(options_.check_replicas, position_.step)) {
    const Span span(timeline, Category::other, "check replicas");
    check_replicas(session_, *model_);
  }
  report();
}

// At the first step and every log_steps steps, all ranks get the mean loss, and it is written to
// metrics.jsonl. Between these steps the bar shows the last known values.
void Trainer::report() {
  const bool log = position_.step == 1 || due(options_.log_steps, position_.step) || finished();
  if (log) {
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
    if (leads() && trained) {
      const double step_s = seconds_since(reported_ns_) / static_cast<double>(steps_);
      samples_per_s_ = static_cast<double>(global_batch()) / step_s;
      metrics_->write(MetricsLog::Training{position_.step, position_.epoch, last_loss_,
                                           rate_of(position_.step - 1), samples_per_s_, step_s * 1e3});
    }
    loss_sum_.zero_();
    loss_steps_ = steps_ = 0;
    reported_ns_ = now_ns();
  }
  if (leads() && !options_.bucket_mb && !tuning_kept_ && optimizer_.tuned()) {
    tuning_kept_ = true;
    try {
      progress_->say(keep_tuned_plan(options_.run_dir, session_.size(), *optimizer_.tuned()));
    } catch (const Error& error) {  // On a full disk, training goes on.
      log_warning("the measured bucket size is not kept: {}", error.what());
    }
  }
  const bool known = std::isfinite(last_loss_);  // Not until the first line of metrics.
  if (leads() && known) progress_->update({position_.step, position_.epoch, last_loss_, samples_per_s_});
}

// Evaluates every held-out sample once for any number of ranks; the sums are reduced over the ranks. A
// long evaluation must not use up the time until the job is killed, so the ranks agree now and then
// whether to stop. The last evaluation is not repeated by another start, so it goes on, but what was
// trained is saved first.
std::optional<double> Trainer::evaluate() {
  constexpr std::size_t batches_between_votes = 16;
  const Span span(session_.timeline(), Category::evaluation, "evaluation");
  const auto begin_ns = now_ns();
  const torch::NoGradGuard no_grad;
  model_->eval();
  Score score;
  std::vector<std::int64_t> own;
  for (std::int64_t i = session_.rank(); i < data_.held_out->size(); i += session_.size()) own.push_back(i);
  const std::size_t batch = static_cast<std::size_t>(std::max<std::int64_t>(options_.batch, 64));
  const auto most = static_cast<std::size_t>(ceil_div(data_.held_out->size(), session_.size()));
  for (std::size_t first = 0; first < most; first += batch) {
    const auto done = first / batch;
    if (!stopping_ && done > 0 && done % batches_between_votes == 0) {
      auto requests = torch::full({1}, stop_requested_() ? 1.0 : 0.0);
      session_.allreduce_(requests, ReduceOp::sum);
      stopping_ = requests.item<double>() > 0;
      if (stopping_ && !finished()) return std::nullopt;
      if (stopping_) save(score_unknown);
    }
    if (first >= own.size()) break;
    const Autocast autocast(precision_, session_.device());
    const auto part =
        input_.start(data_.held_out->get(std::span(own).subspan(first, std::min(batch, own.size() - first))));
    input_.hold(part);
    const auto more = model_->score(model_->forward(part.x), part.y);
    score.loss_sum += more.loss_sum;
    score.correct += more.correct;
    score.count += more.count;
  }
  model_->train();
  auto sums = torch::tensor({score.loss_sum, static_cast<double>(score.correct),
                             static_cast<double>(score.count), stop_requested_() ? 1.0 : 0.0},
                            torch::kFloat64);
  session_.allreduce_(sums, ReduceOp::sum);
  const double loss = (sums[0] / sums[2]).item<double>();
  const double accuracy = (sums[1] / sums[2]).item<double>();
  stopping_ = stopping_ || sums[3].item<double>() > 0;
  if (loss < best_score_ || (std::isnan(best_score_) && !std::isnan(loss))) {
    best_score_ = loss;
    best_step_ = position_.step;
  }
  if (leads()) {
    metrics_->write(MetricsLog::Evaluation{position_.step, position_.epoch, loss, accuracy});
    const auto shown = std::isfinite(loss)
                           ? fmt::format("held-out loss {:.4f}{}", loss, data_.shape.text ? " nats/byte" : "")
                           : "the held-out loss is not finite";
    progress_->say(fmt::format("epoch {}  step {}  {}  accuracy {:.2f} %", position_.epoch, position_.step,
                               shown, 100 * accuracy));
    reported_ns_ += now_ns() - begin_ns;  // The rate is that of the steps.
  }
  return loss;
}

void Trainer::show_sample() {
  if (options_.sample == 0) return;
  const Span span(session_.timeline(), Category::evaluation, "sample");
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed);
  const std::string prompt = "The ";
  std::istringstream lines(prompt + generate(*model_, prompt, options_.sample, 0.8, generator));
  std::string text = "\nA sample of the generated text:";
  for (std::string line; std::getline(lines, line);) text += "\n" + printable(line);  // The bytes may be any.
  progress_->say(text);
}

void Trainer::resume(const Position& position, Snapshot* snapshot) {
  restore(session_, *model_, *inner_, snapshot);
  if (auto* const scaler = optimizer_.loss_scaler()) restore_loss_scale(session_, *scaler, snapshot);
  start_at(position);
  saved_step_ = position_.step;
  if (snapshot == nullptr) return;
  const bool known = !std::isnan(snapshot->best_score);  // Not in files of format version 1.
  best_score_ = known ? snapshot->best_score : snapshot->score;
  best_step_ = known ? snapshot->best_step : snapshot->step;
}

// Only rank 0 knows the time and whether the last checkpoint has been written. If ranks average
// parameters, they also do so at a save, which is therefore never postponed: the result must not depend on
// the speed of the disk.
void Trainer::save_if_due(double score) {
  if (position_.step < ask_at_) return;
  std::array<std::int64_t, 2> answer{};
  if (leads()) {
    const bool ready = store_->idle() || averages_parameters();
    const auto [save, ask_again] = schedule_->ask(position_.step, ready, seconds_since(0));
    answer = {save, ask_again};
  }
  session_.internals().communicator().broadcast("save", answer.data(), sizeof answer, 0);
  ask_at_ = answer[1];
  if (answer[0] == 0) return;
  averages_parameters() ? save(score) : take_snapshot(score);
}

void Trainer::save(double score) {
  await_writer(session_, store_.get());
  take_snapshot(score);
}

void Trainer::take_snapshot(double score) {
  const Span span(session_.timeline(), Category::checkpoint, "snapshot");
  const auto begin_ns = now_ns();
  confirm();
  optimizer_.average_parameters();
  optimizer_.average_state();
  auto builder = leads() ? store_->builder() : SnapshotBuilder();
  capture(session_, *model_, *inner_, position_, builder, copies_ ? &*copies_ : nullptr);
  saved_step_ = position_.step;
  if (!leads()) return;
  if (const auto* const scaler = optimizer_.loss_scaler()) add_loss_scale(builder, *scaler);
  add_order(builder, {data_.train->size(), data_.hash, options_.seed});
  auto snapshot = builder.finish();
  snapshot.config = options_.to_json();
  snapshot.versions = json_text(library_versions());
  snapshot.score = score;
  snapshot.best_score = best_score_;
  snapshot.best_step = best_step_;
  store_->save(std::move(snapshot), copies_ ? copies_->start() : std::function<void()>());
  schedule_->saved(position_.step, seconds_since(0), seconds_since(begin_ns) + store_->write_seconds());
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
  if (!leads()) return;
  progress_->say(fmt::format("step {} is skipped: {}", position_.step, reason));
  metrics_->write(MetricsLog::SkippedStep{position_.step, position_.epoch, reason});
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
  await_writer(session_, store_.get());
  session_.together([&] {
    if (!leads()) return;
    auto found = read_newest_checkpoint(options_.run_dir / "checkpoints", memory_of(*model_));
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
    progress_->say(fmt::format("step {}: {}; the parameters are those of step {} again", position_.step,
                               reason, snapshot->step));
    metrics_->write(MetricsLog::Rollback{position_.step, position_.epoch, snapshot->step, reason});
  });
  restore(session_, *model_, *inner_, snapshot ? &*snapshot : nullptr);
}

namespace {

std::filesystem::path file_for(const std::filesystem::path& run_dir, int ranks) {
  return run_dir / fmt::format("tuned-{}-ranks.ini", ranks);
}

}  // namespace

std::string keep_tuned_plan(const std::filesystem::path& run_dir, int ranks, const TunedPlan& plan) {
  const double mib = static_cast<double>(plan.bucket_bytes) / (1024 * 1024);
  const auto measured = plan.steps == 0
                            ? std::string("there are too few gradients for more than one bucket plan")
                            : fmt::format("{:.2f} ms per step, {:.2f} with the default, measured in {} steps",
                                          plan.milliseconds, plan.default_milliseconds, plan.steps);
  const auto file = file_for(run_dir, ranks);
  write_file_atomically(file, fmt::format("# Found by --bucket-mb auto on {} ranks: {}.\nbucket-mb={:g}\n",
                                          ranks, measured, mib));
  return fmt::format("buckets of {:g} MiB: {}; written to {}", mib, measured, file.string());
}

void take_tuned_plan(TrainOptions& options, int ranks) {
  const auto file = file_for(options.run_dir, ranks);
  if (options.bucket_mb || !std::filesystem::exists(file)) return;
  TrainOptions kept;
  auto parser = train_option_parser(kept, file.parent_path());
  const std::string path = file.string();
  const char* const arguments[] = {"train", "--profile", path.c_str()};
  parser.parse(3, arguments);
  options.bucket_mb = kept.bucket_mb;
}

}  // namespace farandole
