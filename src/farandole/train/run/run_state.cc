#include "farandole/train/run/run_state.h"

#include <ATen/Context.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <torch/utils.h>
#include <torch/version.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/nccl/nccl_communicator.h"
#include "farandole/launch/process/memory.h"
#include "farandole/timeline/counters/counters.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/run/device_peak.h"
#include "farandole/train/run/gpu_memory.h"
#include "farandole/train/session_internals.h"

namespace farandole {
namespace {

std::map<std::string, std::string> versions() {
  auto all = library_versions();
  all["libtorch"] = TORCH_VERSION;
  return all;
}

// The trace of this start shows what the start before it has lost, and how long nothing was done.
void record_loss(Timeline& timeline, const LostWork& lost) {
  const auto now = now_ns();
  const auto in_trace = [shift = now - real_time_ns()](std::int64_t ns) { return ns + shift; };
  if (lost.steps > 0 && lost.begin_ns > 0) {
    const auto name = timeline.intern(fmt::format("lost work: {} steps", lost.steps));
    timeline.span(Category::other, name, in_trace(lost.begin_ns), in_trace(lost.end_ns));
  }
  timeline.span(Category::other, "restart", in_trace(lost.end_ns), now);
}

}  // namespace

RunState::RunState(Session& session, RunStateOptions options, const TrackedState& tracked, Hooks hooks)
    : session_(session),
      options_(std::move(options)),
      tracked_(tracked),
      hooks_(std::move(hooks)),
      meter_(session.internals(), session.internals().gpu_to_watch()) {}

void RunState::resume(const Position& from, Snapshot* snapshot) {
  restore(session_, tracked_, snapshot);
  position = from;
  resumed_ = true;
  saved_epoch_ = from.epoch;
  if (snapshot == nullptr) return;
  const bool known = !std::isnan(snapshot->best_score);  // Not in files of format version 1.
  best_score_ = known ? snapshot->best_score : snapshot->score;
  best_step_ = known ? snapshot->best_step : snapshot->step;
  score_ = snapshot->score;
  scored_step_ = snapshot->step;
}

void RunState::begin() {
  checkpoints_.emplace(session_,
                       RunCheckpoints::Options{options_.run_dir, options_.checkpoint_every, options_.mtbf,
                                               options_.keep, options_.keep_every},
                       position.step, resumed_);
  session_.together([&] {
    if (leads()) log_.emplace(options_.run_dir / "metrics.jsonl", position.step);
  });
  open_metric_files();
  reported_ns_ = now_ns();
}

// Each rank has a file of its own for Prometheus; the values of the whole job are in that of rank 0.
void RunState::open_metric_files() {
  if (!options_.prometheus.empty()) {
    const char* const job = std::getenv("SLURM_JOB_ID");
    const auto name = std::filesystem::absolute(options_.run_dir).lexically_normal().filename().string();
    prometheus_ = std::make_unique<PrometheusTextfile>(options_.prometheus, job != nullptr ? job : name,
                                                       session_.rank());
  }
  if (!log_) return;
  if (options_.tensorboard)
    tensorboard_ = std::make_unique<TensorBoardWriter>(options_.run_dir / "tensorboard", position.step);
  if (!tensorboard_ && !prometheus_) return;
  log_->observer = [this](std::int64_t step, std::string_view name, double value) {
    if (tensorboard_) tensorboard_->add(step, name, value);
    if (prometheus_) prometheus_->set_metric(name, value);
  };
}

void RunState::update_prometheus(double step_s) {
  if (!prometheus_) return;
  using Type = PrometheusTextfile::Type;
  const auto counters = ProcessCounters::read();
  prometheus_->set("steps_total", "Optimizer steps that are done.", Type::counter,
                   static_cast<double>(position.step));
  prometheus_->set("step_seconds", "Time of a step.", Type::gauge, step_s);
  prometheus_->set("cpu_seconds_total", "CPU time of this rank.", Type::counter,
                   static_cast<double>(counters.cpu_ns) * 1e-9);
  if (const auto memory = resident_mib())
    prometheus_->set("resident_memory_bytes", "Memory of this rank.", Type::gauge, *memory * 1024 * 1024);
  prometheus_->publish();
}

RunFacts RunState::facts() const {
  auto& internals = session_.internals();
  RunFacts facts;
  facts.ranks = session_.size();
  facts.hosts = session_.hosts();
  facts.gpus = internals.gpus;
  facts.gpu_topology = internals.gpu_topology;
  facts.device = session_.device().is_cuda() ? "cuda" : "cpu";
  facts.parameters = 0;
  for (const auto& [prefix, module] : tracked_.modules)
    for (const auto& parameter : module->parameters()) *facts.parameters += parameter.numel();
  facts.config = options_.config;
  facts.threads = torch::get_num_threads();
  facts.cores = session_.node_cores();
  if (const auto memory = job_memory_bytes()) facts.memory_mib = *memory >> 20;
  facts.versions = versions();
  facts.between_nodes = session_.between_nodes();
  if (!internals.optimizers.empty() && session_.size() > 1)
    facts.sharding = describe(internals.optimizers.front()->sharding());
  if (internals.gpu && !internals.gpu->shared) facts.versions["nccl"] = nccl_version();
  return facts;
}

void RunState::started(RunDirectory& directory, RunFacts facts) {
  directory_ = &directory;
  if (const auto lost = directory.started(std::move(facts), position.step))
    record_loss(session_.timeline(), *lost);
}

void RunState::watch_operators() {
  if (directory_ == nullptr || (std::exchange(watched_, true) && operators_ == nullptr)) return;
  operators_.reset();  // Only one can count.
  operators_ = std::make_unique<FlopCounter>();
}

void RunState::operators_done() {
  const auto operators = std::exchange(operators_, nullptr);
  if (operators == nullptr) return;
  const auto& gpu = session_.internals().gpu;
  directory_->add([&](RunFacts& facts) {
    if (options_.model_flops > 0) {
      facts.model_flops = options_.model_flops;
      facts.model_flops_from = "given by the program";
    } else if (const double flops = operators->flops() * session_.size(); flops > 0) {
      facts.model_flops = flops;
      facts.model_flops_from = fmt::format("counted from LibTorch's operators in step {}", position.step);
    }
    if (options_.peak_tflops > 0) {
      facts.peak_tflops = options_.peak_tflops;
      facts.peak_from = "given";
      return;
    }
    if (!gpu) return;
    const auto name = gpu->runtime->describe(gpu->device).name;
    const bool tf32 = at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
                      at::Float32Precision::TF32;
    facts.peak_tflops = device_peak_tflops(name, operators->type(), tf32);
    const bool rounded = operators->type() == c10::ScalarType::Float && tf32;
    if (facts.peak_tflops)
      facts.peak_from = fmt::format("{}, {}", name, rounded ? "TF32" : c10::toString(operators->type()));
  });
}

void RunState::tell_memory(RunFacts& facts) const {
  auto& internals = session_.internals();
  if (!internals.gpu) return;
  std::size_t gradients = 0;
  for (const auto* const optimizer : internals.optimizers) gradients += optimizer->gradient_bytes();
  facts.gpu_memory_by_owner_mib = gpu_memory_by_owner_mib(internals.gpu->device, tracked_, gradients);
}

std::optional<ModelRate> RunState::rate_of(double step_s) const {
  if (directory_ == nullptr || !directory_->facts()) return std::nullopt;
  return model_rate(*directory_->facts(), step_s);
}

std::optional<ModelRate> RunState::whole_rate() const {
  return lines_steps_ > 0 ? rate_of(lines_s_ / static_cast<double>(lines_steps_)) : std::nullopt;
}

std::string RunState::describe_rate() const {
  const auto rate = whole_rate();
  return rate ? fmt::format("{} ({})", rate->text(), describe_model_flops(*directory_->facts())) : "";
}

void RunState::count_step(const std::vector<std::pair<std::string, torch::Tensor>>& values, bool trained) {
  operators_done();
  ++steps_;
  if (!trained) return;
  ++trained_steps_;
  // Optimizers have their state after their first step.
  if (leads() && session_.device().is_cuda() && !std::exchange(prepared_, true))
    checkpoints_->prepare(bytes_on_gpu(tracked_));
  for (const auto& [name, value] : values) {
    auto found = std::ranges::find(sums_, name, [](const auto& sum) { return sum.first; });
    if (found == sums_.end())
      found = sums_.insert(sums_.end(), {name, torch::zeros({}, value.options().dtype(torch::kFloat64))});
    found->second += value;
  }
}

// All values are reduced at once, with the number of steps that they are of.
void RunState::report(bool last, double lr, double samples_per_step) {
  const bool due = options_.log_steps > 0 && position.step % options_.log_steps == 0;
  if (position.step != 1 && !due && !last) return;
  std::vector<torch::Tensor> all;
  for (const auto& [name, sum] : sums_) all.push_back(sum.cpu().reshape({}));
  all.push_back(torch::tensor(static_cast<double>(trained_steps_), torch::kFloat64));
  auto sums = torch::stack(all);
  session_.allreduce_(sums, ReduceOp::sum);
  const double steps = sums[-1].item<double>();
  std::vector<double> means;
  for (std::size_t k = 0; k < sums_.size(); ++k)
    means.push_back(sums[static_cast<std::int64_t>(k)].item<double>() / steps);
  if (steps > 0) {
    for (std::size_t k = 0; k < sums_.size(); ++k) {
      if (sums_[k].first != "loss") continue;
      last_loss_ = means[k];
      if (std::isfinite(last_loss_)) continue;  // The same on all ranks.
      const auto ranks = ranks_where(!std::isfinite(sums_[k].second.item<double>()));
      session_.together([&] {
        throw Error(fmt::format("the loss is not finite up to step {} on {}; {}", position.step,
                                describe_ranks(ranks), options_.loss_remedy));
      });
    }
    if (log_) write_line(means, lr, samples_per_step);
  }
  update_prometheus(seconds_since(reported_ns_) / static_cast<double>(steps_));
  if (tensorboard_) tensorboard_->publish();
  for (auto& [name, sum] : sums_) sum.zero_();
  trained_steps_ = steps_ = 0;
  reported_ns_ = now_ns();
}

void RunState::write_line(const std::vector<double>& means, double lr, double samples_per_step) {
  const double line_s = seconds_since(reported_ns_);
  if (step_s_ > 0) {
    // In the first step, activations did not share the memory with the optimizer's state yet.
    if (lines_steps_ == 0 && directory_ != nullptr && session_.internals().gpu)
      directory_->add([this](RunFacts& facts) { tell_memory(facts); });
    lines_s_ += line_s;
    lines_steps_ += steps_;
  }
  step_s_ = line_s / static_cast<double>(steps_);
  samples_per_s_ = samples_per_step / step_s_;
  MetricsLog::Training line{position.step, position.epoch, {}, lr, samples_per_s_, step_s_ * 1e3};
  for (std::size_t k = 0; k < sums_.size(); ++k) line.values.emplace_back(sums_[k].first, means[k]);
  log_->write(line);
}

std::optional<double> RunState::last_loss() const {
  return std::isfinite(last_loss_) ? std::optional(last_loss_) : std::nullopt;
}

void RunState::log_resources(std::int64_t epoch) {
  const auto usage = meter_.gather();
  if (log_) log_->write(MetricsLog::Resources{position.step, epoch, usage});
}

bool RunState::scored(double score) {
  score_ = score;
  scored_step_ = position.step;
  const bool best = score < best_score_ || (std::isnan(best_score_) && !std::isnan(score));
  if (best) {
    best_score_ = score;
    best_step_ = position.step;
  }
  return best;
}

void RunState::share_buffers() {
  for (const auto& [prefix, module] : tracked_.modules)
    for (auto& buffer : module->buffers())
      if (buffer.defined()) session_.broadcast_(buffer);
}

bool RunState::has_buffers() const {
  return std::ranges::any_of(tracked_.modules,
                             [](const auto& named) { return !named.second->buffers().empty(); });
}

void RunState::save() {
  checkpoints_->await_writer();
  take_snapshot();
}

void RunState::take_snapshot() {
  const Span span(session_.timeline(), Category::checkpoint, "snapshot");
  hooks_.settle();
  share_buffers();
  checkpoints_->save(
      position.step,
      [&](SnapshotBuilder& builder, DeviceCopies* copies) {
        position.samples = hooks_.save_samples(builder);
        capture(session_, tracked_, position, builder, copies);
      },
      [&](Snapshot& snapshot) {
        snapshot.config = options_.config;
        snapshot.versions = json_text(versions());
        snapshot.score = scored_step_ == position.step ? score_ : score_unknown;
        snapshot.best_score = best_score_;
        snapshot.best_step = best_step_;
      });
  saved_epoch_ = position.epoch;
}

void RunState::close() {
  if (tensorboard_) tensorboard_->publish();
  if (checkpoints_->saved_step() < position.step || saved_epoch_ < position.epoch) save();
  checkpoints_->wait();
  if (directory_ == nullptr) return;
  directory_->add([this](RunFacts& facts) {
    tell_memory(facts);
    if (const auto rate = whole_rate()) {
      facts.tflops = rate->tflops;
      facts.mfu = rate->mfu;
    }
  });
}

bool RunState::any_rank_asks_to_stop() {
  auto requests = torch::full({}, hooks_.stop_requested() ? 1.0 : 0.0, torch::kFloat64);
  session_.allreduce_(requests, ReduceOp::sum);
  return requests.item<double>() > 0;
}

std::vector<int> RunState::ranks_where(bool here) {
  const auto all = session_.all_gather(torch::full({1}, here));
  std::vector<int> ranks;
  for (int r = 0; r < session_.size(); ++r)
    if (all[r].item<bool>()) ranks.push_back(r);
  return ranks;
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

}  // namespace farandole
