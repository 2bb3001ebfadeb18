#include "farandole/estimator/epoch_trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <torch/utils.h>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/text/json.h"
#include "farandole/checkpoint/schema.h"
#include "farandole/train/run/training_state.h"
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

LearningRate learning_rate(const EstimatorOptions& options, int ranks, std::int64_t epoch_steps) {
  LearningRate rate;
  rate.base = options.lr;
  rate.world_size = ranks;
  rate.scale = options.scale_lr;
  rate.warmup_steps = options.warmup_steps;
  rate.schedule = schedule_of(options.schedule);
  rate.total_steps = options.epochs * epoch_steps;
  rate.step_size = options.lr_step_epochs * epoch_steps;
  rate.gamma = options.lr_gamma;
  return rate;
}

DistributedOptimizer::NamedParameters named_trained_parameters(torch::nn::Module& module) {
  DistributedOptimizer::NamedParameters named;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) named.insert(item.key(), item.value());
  return named;
}

DistributedOptimizerOptions optimizer_options(const EstimatorOptions& options, std::function<bool()> stop) {
  DistributedOptimizerOptions result;
  result.backward_passes_per_step = options.accumulate;
  result.stop_requested = std::move(stop);
  return result;
}

}  // namespace

EpochTrainer::EpochTrainer(Session& session, const EstimatorOptions& options, const DataTable& table,
                           RowSelection rows, Objective& objective, const std::function<bool()>& stop)
    : session_(session),
      options_(options),
      objective_(objective),
      reader_(table, std::move(rows),
              {.columns = objective.tensors().columns(),
               .batch = options.batch,
               .shuffle = options.shuffle,
               .seed = options.seed,
               .rank = session.rank(),
               .world_size = session.size()}),
      inner_(make_optimizer({options.optimizer, options.lr, options.momentum, options.weight_decay},
                            objective.model().trained_parameters())),
      optimizer_(session, *inner_, named_trained_parameters(objective.model().module()),
                 optimizer_options(options, [this, stop] { return failed_ || stop(); })),
      epoch_steps_(steps_in(passes_at_most(reader_.batches()))) {
  rate_ = learning_rate(options, session.size(), epoch_steps_);
  session.broadcast(objective.model().module());
  torch::manual_seed(options.seed + 1 + static_cast<std::uint64_t>(session.rank()));
}

std::int64_t EpochTrainer::passes_at_most(std::int64_t passes) const {
  const auto limit = options_.train_steps * options_.accumulate;
  return limit > 0 ? std::min(limit, passes) : passes;
}

bool EpochTrainer::resume(std::optional<Snapshot> snapshot) {
  std::string state;
  session_.together([&] {
    if (!snapshot) return;
    check_order(*snapshot, order(), "--table");
    state = FitProgress::from(*snapshot).to_json();
  });
  session_.broadcast(state);
  if (state.empty()) return false;
  restore(session_, objective_.model().module(), *inner_, snapshot ? &*snapshot : nullptr);
  const auto progress = FitProgress::from_json(state);
  step_ = progress.step;
  epoch_ = progress.epoch;
  passes_done_ = progress.passes;
  loss_sum_.fill_(progress.loss * static_cast<double>(progress.steps));
  loss_steps_ = progress.steps;
  done_ = progress.done;
  if (snapshot) resumed_scores_ = scores_in(*snapshot);
  // The learning rate continues where it was in the epoch, also with another number of ranks or batch size.
  session_.together([&] { begin_epoch(); });
  const auto scheduled = (epoch_ + 1) * epoch_steps_ - steps_in(passes_ - passes_done_);
  schedule_offset_ = epoch_ < options_.epochs ? scheduled - step_ : 0;
  return true;
}

void EpochTrainer::save(SnapshotBuilder& snapshot) {
  Position position{step_, epoch_, 0};
  const auto done = passes_done_ > 0 ? reader_.done_after(passes_done_ - passes_before_) : RowRanges();
  for (const auto& [first, end] : done) position.samples += end - first;
  capture(session_, objective_.model().module(), *inner_, position, snapshot);
  if (position.samples == 0) return;
  const FitProgress progress{step_, epoch_, passes_done_, done, mean_loss(), loss_steps_};
  const auto scores = scores_ ? scores_->sums(session_) : torch::Tensor();
  if (session_.rank() != 0) return;
  add_order(snapshot, order());
  progress.add_to(snapshot);
  if (scores_) add_scores(snapshot, scores);
}

void EpochTrainer::begin_epoch() {
  objective_.model().train(true);
  reader_.start(epoch_, done_);
  passes_before_ = passes_done_;
  passes_ = passes_at_most(passes_done_ + reader_.batches());
  if (!options_.metrics.empty() || !options_.metric_functions.empty())
    scores_.emplace(score_options(objective_, options_));
  if (scores_ && resumed_scores_.defined()) scores_->restore(resumed_scores_);
}

EpochResult EpochTrainer::end_epoch() {
  EpochResult result;
  result.epoch = ++epoch_;
  result.step = step_;
  result.loss = mean_loss();
  result.lr = rate_of(step_ - 1);
  passes_done_ = 0;
  done_.clear();
  resumed_scores_ = torch::Tensor();
  loss_sum_.zero_();
  loss_steps_ = 0;
  if (!std::isfinite(result.loss))
    session_.together(
        [&] { throw Error(fmt::format("the loss is not finite in epoch {}; lower --lr", result.epoch)); });
  if (scores_) result.training_metrics = scores_->reduce(session_).metrics;
  return result;
}

// Returns the mean loss of the epoch so far, over all ranks.
double EpochTrainer::mean_loss() {
  return session_.allreduce(loss_sum_ / static_cast<double>(std::max<std::int64_t>(loss_steps_, 1)))
      .item<double>();
}

// Keeps the first error of this rank's data, which the others learn from the reduction of the gradients.
void EpochTrainer::guard(const std::function<void()>& work) {
  if (failed_) return;
  try {
    work();
  } catch (const Error&) {
    error_ = std::current_exception();
    failed_ = true;
  }
}

EpochTrainer::Batches EpochTrainer::load(std::int64_t passes) {
  const auto together = options_.batch * session_.size();
  const auto left = reader_.left_rows() - (passes_done_ - passes_before_) * together;
  Batches batches;
  batches.rows_read = std::min(left, passes * together);
  std::vector<std::int64_t> pass_of;                          // Of each batch of this rank.
  auto rows_of_pass = torch::zeros({passes}, torch::kInt64);  // Of all ranks.
  auto* const counts = rows_of_pass.data_ptr<std::int64_t>();
  {
    const Span span(session_.timeline(), Category::data, "data");
    for (std::int64_t pass = 0; pass < passes; ++pass)
      guard([&] {
        auto batch = reader_.next();
        if (!batch) return;
        auto rows = objective_.tensors().take(*std::move(batch));
        if (rows.size() == 0) return;
        counts[pass] = rows.size();
        batches.own.push_back({std::move(rows), 0});
        pass_of.push_back(pass);
      });
  }
  if (options_.nan == "skip")  // Only the rank that reads a row knows whether it is left out.
    session_.allreduce_(rows_of_pass, ReduceOp::sum);
  else
    for (std::int64_t pass = 0; pass < passes; ++pass)
      counts[pass] = std::min(left - pass * together, together);
  const auto used = passes - std::count(counts, counts + passes, 0);
  batches.empty = used == 0;
  for (std::size_t i = 0; i < batches.own.size(); ++i)
    batches.own[i].weight =
        static_cast<double>(session_.size()) / static_cast<double>(counts[pass_of[i]] * used);
  return batches;
}

StepResult EpochTrainer::step() {
  auto& timeline = session_.timeline();
  session_.set_step(step_);
  const Span whole(timeline, Category::step, "step");
  const auto begin_ns = now_ns();
  const auto passes = std::min<std::int64_t>(options_.accumulate, passes_ - passes_done_);
  for (auto& group : inner_->param_groups()) group.options().set_lr(rate_of(step_));
  const auto batches = load(passes);
  torch::Tensor first;
  const auto evaluate = [&] {
    optimizer_.zero_grad();
    auto sum = torch::zeros({}, torch::kFloat64);
    for (const auto& batch : batches.own) {
      torch::Tensor loss;
      guard([&] {
        const Span span(timeline, Category::forward, "forward");
        const auto losses = objective_.of(batch.rows);
        if (scores_ && !first.defined()) scores_->add(losses, batch.rows);
        loss = losses.sum * batch.weight;
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
        throw Error(fmt::format("step {}: {}; lower --lr, or look for unusual values in the features (--nan)",
                                step_ + 1, gradient.what()));
      });
    }
  }
  stopping_ = optimizer_.stopping();
  if (stopping_)
    session_.together([&] {
      if (failed_) std::rethrow_exception(error_);
    });
  ++step_;
  passes_done_ += passes;
  loss_sum_ += first;
  if (!batches.empty) ++loss_steps_;
  return {first, rate_of(step_ - 1), batches.rows_read, seconds_since(begin_ns)};
}

namespace {

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

}  // namespace

FitProgress FitProgress::from(const Snapshot& snapshot) {
  const auto position = position_of(snapshot);
  FitProgress progress{.step = position.step, .epoch = position.epoch};
  const auto passes = values_of<std::int64_t>(snapshot.find(schema::sampler_passes)),
             bounds = values_of<std::int64_t>(snapshot.find(schema::sampler_ranges));
  const auto loss = values_of<double>(snapshot.find(schema::sampler_loss));
  // Checkpoints of earlier versions do not have these: the epoch begins anew.
  if (position.samples == 0 || passes.size() != 1 || loss.size() != 2) return progress;
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
  return json_text({{"step", step},
                    {"epoch", epoch},
                    {"passes", passes},
                    {"done", ranges},
                    {"loss", loss},
                    {"steps", steps}});
}

FitProgress FitProgress::from_json(const std::string& text) {
  const auto json = parse_json(text);
  FitProgress progress{json.at("step"), json.at("epoch"), json.at("passes"), {},
                       json.at("loss"), json.at("steps")};
  for (const auto& range : json.at("done")) progress.done.push_back({range.at(0), range.at(1)});
  return progress;
}

void add_scores(SnapshotBuilder& snapshot, const torch::Tensor& sums) {
  const auto to = snapshot.add(schema::sampler_scores, DType::float64, sums.sizes().vec());
  std::memcpy(to.data(), sums.data_ptr(), to.size());
}

torch::Tensor scores_in(const Snapshot& snapshot) {
  const auto values = values_of<double>(snapshot.find(schema::sampler_scores));
  return values.empty() ? torch::Tensor() : torch::tensor(values, torch::kFloat64);
}

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

void check_objective(Objective& objective, const DataTable& table, const EstimatorOptions& options,
                     int ranks) {
  objective.model().trained_parameters();
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
  Scores scores(score_options(objective, options));
  scores.add(objective, reader, 1);
}

ScoreOptions score_options(const Objective& objective, const EstimatorOptions& options) {
  return {options.labels, objective.classifies(), options.metrics, options.metric_functions};
}

}  // namespace farandole
