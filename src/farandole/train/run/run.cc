#include "farandole/train/run.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/log.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/launch/stop_request.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/run/run_state.h"
#include "farandole/train/session_internals.h"

namespace farandole {
namespace {

std::filesystem::path choose_folder(const RunOptions& options) {
  const auto given = run_dir_of_environment();
  const auto folder = given.empty() ? options.run_dir : given;
  if (folder.empty())
    throw UserError(
        "a Run needs a run directory; start the program with farandole run --run-dir RUN, or set "
        "RunOptions::run_dir");
  return folder;
}

std::string command_line() {
  auto text = read_whole_file("/proc/self/cmdline").value_or("");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text;
}

void check(const RunOptions& options) {
  const auto refuse = [](const char* name, auto value, const char* remedy) {
    throw UserError(fmt::format("RunOptions::{} cannot be {}; {}", name, value, remedy));
  };
  if (options.global_batch < 0) refuse("global_batch", options.global_batch, "it counts samples");
  if (options.total_steps < 0) refuse("total_steps", options.total_steps, "it counts steps");
  if (options.keep < 1) refuse("keep", options.keep, "keep at least 1 checkpoint");
  if (options.log_every < 1) refuse("log_every", options.log_every, "1 writes a line for each step");
  if (!(options.model_flops >= 0)) refuse("model_flops", options.model_flops, "it counts operations");
  if (!(options.peak_tflops >= 0)) refuse("peak_tflops", options.peak_tflops, "it is a rate");
  if (options.patience < 0) refuse("patience", options.patience, "0 never ends the training");
  if (!options.config.empty() && !try_parse_json(options.config).is_object())
    refuse("config", options.config, "it must be a JSON object");
}

}  // namespace

struct Run::Parts {
  // What decides which evaluation is the best.
  struct Goal {
    std::string name;  // empty: not known yet; "?": it cannot be known
    bool highest = false;
  };
  Parts(Session& the_session, RunOptions the_options);

  static Goal parse_goal(const std::string& text);
  void begin();
  void refuse(bool wrong, const std::function<std::string()>& why) const;
  void refuse_if_begun(const char* what) const;
  void find_distributed();
  std::int64_t samples_per_step();
  std::int64_t passes_per_step() const;
  void count_samples();
  bool learns_of_stop();
  void save_if_due();
  void mark_step();
  std::optional<double> score_of(const std::vector<std::pair<std::string, double>>& means);
  bool judge(const std::vector<std::pair<std::string, double>>& means);
  std::int64_t save_samples(SnapshotBuilder& snapshot);
  SampleOrder order() const;
  bool leads() const { return session.rank() == 0; }

  Session& session;
  RunOptions options;
  StopRequest stop;
  Goal goal;
  std::optional<RunDirectory> directory;  // on rank 0
  TrackedState tracked;
  std::vector<DistributedOptimizer*> distributed;  // those of the tracked optimizers
  DistributedSampler* sampler = nullptr;
  std::optional<RunState> state;
  bool begun = false, stopping = false, ended_early = false, finished = false;
  std::int64_t samples = 0;      // of this epoch that all ranks have seen
  std::int64_t epoch_steps = 0;  // in this epoch
  std::int64_t step_began_ns = 0;
  std::uint64_t votes = 0;
  const int exceptions_at_start = std::uncaught_exceptions();
  // Saved with the rest, as epoch_steps: an evaluation that is repeated after a restart must not count twice.
  std::int64_t worse_in_a_row = 0, evaluated_step = -1;
};

Run::Parts::Goal Run::Parts::parse_goal(const std::string& text) {
  if (text.empty()) return {};
  const auto space = text.find(' ');
  const auto which = text.substr(0, space);
  if (space == std::string::npos || space + 1 == text.size() || (which != "min" && which != "max"))
    throw UserError(fmt::format(
        "RunOptions::best cannot be '{}'; give for example \"min loss\" or \"max accuracy\"", text));
  return {text.substr(space + 1), which == "max"};
}

Run::Parts::Parts(Session& the_session, RunOptions the_options)
    : session(the_session), options(std::move(the_options)) {
  RunStateOptions of_state;
  session.together([&] {
    check(options);
    goal = parse_goal(options.best);
    of_state = {choose_folder(options),
                CheckpointInterval::parse(options.checkpoint_every),
                24 * 3600,
                options.keep,
                0,
                options.log_every,
                options.config.empty() ? "{}" : options.config,
                "lower the learning rate, or set DistributedOptimizerOptions::clip_norm",
                options.tensorboard,
                options.prometheus,
                options.model_flops,
                options.peak_tflops};
  });
  auto& internals = session.internals();
  if (internals.recorded() != std::filesystem::absolute(of_state.run_dir)) {
    session.together([&] {
      if (!internals.optimizers.empty())
        throw UserError(
            "make the Run before the DistributedOptimizer, because it begins to record; or start the program "
            "with farandole run --run-dir RUN");
    });
    session.start_recording({.run_dir = of_state.run_dir});
  }
  session.together([&] {
    if (leads()) directory.emplace(of_state.run_dir, internals.earlier_progress());
  });
  options.run_dir = of_state.run_dir;
  if (options.stop_before && leads() && !stop.before_job_ends(*options.stop_before, &std::getenv))
    log_warning("RunOptions::stop_before has no effect, because it is not known when this job ends");
  tracked.values = {{"run/worse_in_a_row", &worse_in_a_row},
                    {"run/evaluated_step", &evaluated_step},
                    {"run/steps_in_epoch", &epoch_steps}};
  state.emplace(session, std::move(of_state), tracked,
                RunState::Hooks{[this] {
                                  find_distributed();
                                  for (auto* const optimizer : distributed) {
                                    optimizer->confirm();
                                    optimizer->average_parameters();
                                    optimizer->average_state();
                                  }
                                },
                                [this](SnapshotBuilder& snapshot) { return save_samples(snapshot); },
                                [this] { return stop.due(); }});
  internals.stop_wish = [this] { return stop.due(); };
  internals.program_marks_steps();  // in mark_step() and step()
}

SampleOrder Run::Parts::order() const {
  return {sampler->dataset_size(), 0, sampler->options().seed};
}

std::int64_t Run::Parts::save_samples(SnapshotBuilder& snapshot) {
  if (sampler != nullptr && leads()) add_order(snapshot, order());
  return samples;
}

// Whatever is refused, is refused on all ranks, because all make the same calls.
void Run::Parts::refuse(bool wrong, const std::function<std::string()>& why) const {
  if (!wrong) return;
  session.together([&] { throw UserError(why()); });
}

void Run::Parts::refuse_if_begun(const char* what) const {
  refuse(begun, [&] { return fmt::format("{} must come before the first step()", what); });
}

// The program may make them after track().
void Run::Parts::find_distributed() {
  distributed.clear();
  tracked.scalers.clear();
  for (auto* const optimizer : tracked.optimizers) {
    auto* const found = session.internals().optimizer_of(*optimizer);
    if (found != nullptr) distributed.push_back(found);
    tracked.scalers.push_back(found != nullptr ? found->loss_scaler() : nullptr);
  }
}

void Run::Parts::begin() {
  if (begun) return;
  find_distributed();
  begun = true;
  state->begin();
  session.together([&] {
    if (!directory) return;
    const auto there = list_checkpoints(directory->checkpoints());
    if (!there.empty() && there.front().step > state->position.step)
      throw UserError(fmt::format(
          "{} already holds a run ({}); call resume() before the first step, or choose another run directory",
          options.run_dir.string(), there.front().file.filename().string()));
    auto facts = state->facts();
    facts.program = command_line();
    if (options.global_batch > 0) facts.global_batch = options.global_batch;
    if (options.total_steps > 0) facts.total_steps = options.total_steps;
    if (!distributed.empty() && !distributed.front()->options().tune)
      facts.bucket_mb = static_cast<double>(distributed.front()->options().buckets.bytes) / (1024 * 1024);
    state->started(*directory, std::move(facts));
  });
  mark_step();
}

// From now on, events belong to the next step.
void Run::Parts::mark_step() {
  if (sampler == nullptr || samples + samples_per_step() <= sampler->dataset_size()) state->watch_operators();
  session.set_step(state->position.step);
  step_began_ns = now_ns();
}

std::int64_t Run::Parts::passes_per_step() const {
  return distributed.empty() ? 1 : distributed.front()->options().backward_passes_per_step;
}

std::int64_t Run::Parts::samples_per_step() {
  const auto batch = sampler != nullptr ? sampler->batch_size() : 0;
  if (batch == 0) return options.global_batch;
  const auto known = batch * session.size() * passes_per_step();
  if (options.global_batch == 0) {
    options.global_batch = known;
    if (directory) directory->add([&](RunFacts& facts) { facts.global_batch = static_cast<double>(known); });
  }
  return known;
}

void Run::Parts::count_samples() {
  const auto given = options.global_batch, per_step = samples_per_step();
  ++epoch_steps;
  if (sampler == nullptr) return;
  refuse(per_step == 0, [] {
    return "RunOptions::global_batch is missing: the samples of a step, of all ranks together. The position in the "
           "epoch follows from it";
  });
  refuse(given != 0 && given != per_step, [&] {
    return fmt::format(
        "RunOptions::global_batch is {}, but the data loader takes batches of {} on each of {} ranks; leave it out, "
        "or set it to {}",
        given, sampler->batch_size(), session.size(), per_step);
  });
  refuse(samples >= sampler->dataset_size(), [&] {
    return fmt::format(
        "epoch {} has had {} steps of {} samples, but the sampler has only {}; RunOptions::global_batch counts the "
        "samples of all ranks in a step, and next_epoch() ends an epoch",
        state->position.epoch, epoch_steps, per_step, sampler->dataset_size());
  });
  samples = std::min(samples + per_step, sampler->dataset_size());
}

// The reduction of the gradients carries the request, if there is one. Otherwise the ranks ask each other.
bool Run::Parts::learns_of_stop() {
  if (const auto now = session.internals().votes; now != votes) {
    votes = now;
    return session.internals().stop_voted;
  }
  return state->any_rank_asks_to_stop();
}

// If ranks average parameters, they also do so at a save, and if the model has running statistics, they share
// them. Such a save is never postponed: the result must not depend on the speed of the disk.
void Run::Parts::save_if_due() {
  const bool changes_training =
      state->has_buffers() || std::ranges::any_of(distributed, [](const auto* optimizer) {
        return optimizer->options().synchronization.of_parameters();
      });
  if (!state->due(!changes_training)) return;
  changes_training ? state->save() : state->take_snapshot();
}

Run::Run(Session& session, RunOptions options)
    : parts_(std::make_unique<Parts>(session, std::move(options))) {}

// What it tracks may have ended before it, so nothing is saved here.
Run::~Run() {
  const auto& p = *parts_;
  p.session.internals().stop_wish = nullptr;
  if (p.begun && !p.finished && std::uncaught_exceptions() == p.exceptions_at_start && p.leads())
    log_warning(
        "the program did not call finish() of its Run: steps after the last checkpoint are not saved");
}

void Run::add(torch::nn::Module& module) {
  parts_->refuse_if_begun("track()");
  const auto& modules = parts_->tracked.modules;
  parts_->refuse(std::ranges::any_of(modules, [](const auto& other) { return other.first.empty(); }), [] {
    return "a Run tracks one module without a name; give others names: run.track(\"critic\", *net)";
  });
  parts_->tracked.modules.emplace_back("", &module);
}

void Run::add(torch::optim::Optimizer& optimizer) {
  parts_->refuse_if_begun("track()");
  parts_->tracked.optimizers.push_back(&optimizer);
}

void Run::add(DistributedOptimizer& optimizer) {
  add(optimizer.inner());
}

void Run::add(DistributedSampler& sampler) {
  parts_->refuse_if_begun("track()");
  parts_->refuse(parts_->sampler != nullptr,
                 [] { return "a Run tracks one sampler, that of the training data"; });
  parts_->sampler = &sampler;
}

void Run::track(const std::string& name, torch::nn::Module& module) {
  parts_->refuse_if_begun("track()");
  parts_->tracked.modules.emplace_back(name + ".", &module);
}

void Run::track(const std::string& name, torch::Tensor& tensor) {
  parts_->refuse_if_begun("track()");
  parts_->tracked.values.emplace_back(name, &tensor);
}

void Run::track(const std::string& name, double& value) {
  parts_->refuse_if_begun("track()");
  parts_->tracked.values.emplace_back(name, &value);
}

void Run::track(const std::string& name, std::int64_t& value) {
  parts_->refuse_if_begun("track()");
  parts_->tracked.values.emplace_back(name, &value);
}

bool Run::resume() {
  auto& p = *parts_;
  p.refuse_if_begun("resume()");
  std::optional<Position> position;
  p.find_distributed();
  {
    const Span span(p.session.timeline(), Category::checkpoint, "restore checkpoint");
    std::optional<Snapshot> start;
    p.session.together([&] {
      if (!p.directory) return;
      if (auto found = read_newest_checkpoint(p.directory->checkpoints(), memory_of(p.tracked)))
        start = std::move(found->second);
      if (start && p.sampler != nullptr) check_order(*start, p.order(), "data set", "SamplerOptions::seed");
    });
    position = share_position(p.session, start);
    if (position) {
      p.state->resume(*position, start ? &*start : nullptr);
      p.samples = position->samples;
      if (p.sampler != nullptr) p.sampler->set_position(position->epoch, position->samples);
    }
  }
  p.begin();
  return position.has_value();
}

std::int64_t Run::epoch() const {
  return parts_->state->position.epoch;
}
std::int64_t Run::steps() const {
  return parts_->state->position.step;
}
std::int64_t Run::steps_in_epoch() const {
  return parts_->epoch_steps;
}
bool Run::stopping() const {
  return parts_->stopping;
}

bool Run::step(const Values& values) {
  auto& p = *parts_;
  p.refuse(p.session.internals().joining(), [] {
    return "Run::step() cannot be used inside a Join, because ranks without batches do not call it; give all "
           "ranks equally many batches with a DistributedSampler";
  });
  p.begin();
  auto& state = *p.state;
  ++state.position.step;
  p.count_samples();
  p.session.timeline().span(Category::step, "step", p.step_began_ns, now_ns());
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  for (const auto& [name, value] : values)
    tensors.emplace_back(
        name, value.tensor().defined() ? value.tensor() : torch::tensor(value.number(), torch::kFloat64));
  state.count_step(tensors, true);
  const auto lr = p.tracked.optimizers.empty()
                      ? std::numeric_limits<double>::quiet_NaN()
                      : p.tracked.optimizers.front()->param_groups().front().options().get_lr();
  state.report(state.position.step == p.options.total_steps, lr, static_cast<double>(p.samples_per_step()));
  p.stopping = p.stopping || p.learns_of_stop();
  if (p.stopping)
    state.save();
  else
    p.save_if_due();
  // The evaluation follows, which is to be of the same model on all ranks.
  const bool epoch_ends = p.sampler != nullptr && p.samples >= p.sampler->dataset_size();
  if (epoch_ends) state.share_buffers();
  p.mark_step();
  if (epoch_ends) p.session.set_step(-1);
  return !p.stopping;
}

std::optional<double> Run::Parts::score_of(const std::vector<std::pair<std::string, double>>& means) {
  const auto find = [&](const std::string& name) {
    return std::ranges::find(means, name, [](const auto& mean) { return mean.first; });
  };
  if (goal.name.empty()) {
    if (find("loss") != means.end())
      goal = {"loss", false};
    else if (find("accuracy") != means.end())
      goal = {"accuracy", true};
    else {
      if (leads() && !means.empty())
        log_warning(
            "no evaluation counts as the best, because it is not known what decides; set RunOptions::best, for "
            "example to \"max {}\"",
            means.front().first);
      goal.name = "?";
    }
  }
  if (goal.name == "?") return std::nullopt;
  const auto found = find(goal.name);
  if (found == means.end())
    throw UserError(fmt::format("RunOptions::best is about {}, which evaluate() does not get", goal.name));
  return goal.highest ? -found->second : found->second;
}

// Returns whether the training should go on.
bool Run::Parts::judge(const std::vector<std::pair<std::string, double>>& means) {
  const bool repeated = evaluated_step == state->position.step;
  std::optional<double> score;
  session.together([&] { score = score_of(means); });
  bool best = score && state->scored(*score);
  session.internals().communicator().broadcast("best", &best, sizeof best, 0);
  if (!repeated) {
    evaluated_step = state->position.step;
    worse_in_a_row = best || !score ? 0 : worse_in_a_row + 1;
    if (auto* const metrics = state->metrics()) {
      MetricsLog::Values line{state->position.step, state->position.epoch, {}};
      for (const auto& [name, value] : means) line.values.emplace_back("eval_" + name, value);
      metrics->write(line);
    }
  }
  stopping = stopping || state->any_rank_asks_to_stop();
  if (best || stopping) state->save();
  ended_early = options.patience > 0 && worse_in_a_row >= options.patience;
  return !stopping && !ended_early;
}

// What the program has done since the last step was the evaluation.
bool Run::evaluate(const Values& values) {
  auto& p = *parts_;
  p.begin();
  p.session.timeline().span(Category::evaluation, "evaluation", p.step_began_ns, now_ns());
  p.state->leave_out(now_ns() - p.step_began_ns);
  auto sums = torch::empty({static_cast<std::int64_t>(values.size())}, torch::kFloat64);
  for (std::size_t k = 0; k < values.size(); ++k)
    sums[static_cast<std::int64_t>(k)] = values[k].second.number();
  p.session.allreduce_(sums);
  std::vector<std::pair<std::string, double>> means;
  for (std::size_t k = 0; k < values.size(); ++k)
    means.emplace_back(values[k].first, sums[static_cast<std::int64_t>(k)].item<double>());
  const bool goes_on = p.judge(means);
  p.mark_step();
  return goes_on;
}

bool Run::evaluate(const std::function<Values()>& work) {
  auto& p = *parts_;
  p.begin();
  p.session.set_step(-1);
  p.state->share_buffers();
  return evaluate(work());
}

void Run::next_epoch() {
  auto& p = *parts_;
  p.begin();
  auto& position = p.state->position;
  p.state->log_resources(position.epoch + 1);
  ++position.epoch;
  p.samples = p.epoch_steps = 0;
  if (p.sampler != nullptr) p.sampler->set_epoch(position.epoch);
  const auto every = CheckpointInterval::parse(p.options.checkpoint_every).epochs();
  if (every > 0 && position.epoch % every == 0) p.state->save();
  p.mark_step();
}

int Run::finish() {
  auto& p = *parts_;
  if (p.finished) return static_cast<int>(p.stopping ? ExitCode::preempted : ExitCode::done);
  p.begin();
  p.finished = true;
  p.session.set_step(-1);
  p.state->close();
  const auto code = p.stopping ? ExitCode::preempted : ExitCode::done;
  if (p.directory) p.directory->ended(static_cast<int>(code));
  if (p.stopping && p.leads())
    fmt::print("stop requested: saved at step {}; the same command continues from there\n", steps());
  return static_cast<int>(code);
}

}  // namespace farandole
