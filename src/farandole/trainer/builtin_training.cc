#include "farandole/trainer/builtin_training.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <span>
#include <sstream>
#include <torch/utils.h>
#include <utility>
#include <vector>

#include "farandole/base/text/phrases.h"
#include "farandole/trainer/models/gpt.h"

namespace farandole {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

BuiltInTraining::BuiltInTraining(Session& session, const TrainOptions& options, const DataSplit& data,
                                 std::shared_ptr<Model> model)
    : session_(session),
      options_(options),
      precision_(parse_precision(options.precision)),
      data_(data),
      model_(std::move(model)),
      sampler_(data.train->size(), session, {.shuffle = true, .drop_last = false, .seed = options.seed}),
      input_(session.device()) {
  model_->train();
}

void BuiltInTraining::begin_epoch(std::int64_t epoch) {
  sampler_.set_position(epoch, std::exchange(resumed_samples_, 0));
  batches_.emplace(*data_.train, sampler_, options_.batch, input_, session_.timeline());
}

TrainingData::Passes BuiltInTraining::passes() const {
  const auto whole = ceil_div(data_.train->size(), options_.batch * session_.size());
  return {whole, batches_->left()};
}

bool BuiltInTraining::load(std::int64_t, std::int64_t passes, const Guard&) {
  passes_of_step_ = passes;
  batches_->prefetch();
  return true;
}

// On a CPU, nothing would be gained, and the analyzer looks in the same step for what made a rank late.
void BuiltInTraining::load_ahead() {
  if (input_.copies()) batches_->prefetch();
}

torch::Tensor BuiltInTraining::loss(std::int64_t) {
  const auto [batch, weight] = batches_->next();
  const double part = weight / static_cast<double>(passes_of_step_);
  const auto loss = model_->loss(model_->forward(batch.x), batch.y);
  return part != 1 ? loss * part : loss;
}

std::int64_t BuiltInTraining::save(SnapshotBuilder& snapshot) {
  if (session_.rank() == 0) add_order(snapshot, {data_.train->size(), data_.hash, options_.seed});
  return batches_->seen();
}

void BuiltInTraining::restore(const Position& position, const Snapshot*) {
  resumed_samples_ = position.samples;
}

// The sums are reduced over the ranks. A long evaluation must not use up the time until the job is killed, so
// the ranks agree now and then whether to stop.
std::optional<Score> BuiltInTraining::evaluate(const std::function<bool()>& must_stop) {
  constexpr std::size_t batches_between_votes = 16;
  const torch::NoGradGuard no_grad;
  Score score;
  std::vector<std::int64_t> own;
  for (std::int64_t i = session_.rank(); i < data_.held_out->size(); i += session_.size()) own.push_back(i);
  const std::size_t batch = static_cast<std::size_t>(std::max<std::int64_t>(options_.batch, 64));
  const auto most = static_cast<std::size_t>(ceil_div(data_.held_out->size(), session_.size()));
  for (std::size_t first = 0; first < most; first += batch) {
    const auto done = first / batch;
    if (done > 0 && done % batches_between_votes == 0 && must_stop()) return std::nullopt;
    if (first >= own.size()) continue;
    const Autocast autocast(precision_, session_.device());
    const auto part =
        input_.start(data_.held_out->get(std::span(own).subspan(first, std::min(batch, own.size() - first))));
    input_.hold(part);
    const auto more = model_->score(model_->forward(part.x), part.y);
    score.loss_sum += more.loss_sum;
    score.correct += more.correct;
    score.count += more.count;
  }
  return score;
}

std::optional<Objective::Result> BuiltInTraining::end_epoch(const Epoch& epoch, RunLog* log,
                                                            const std::function<bool()>& must_stop) {
  const Span span(session_.timeline(), Category::evaluation, "evaluation");
  model_->eval();
  const auto score = evaluate(must_stop);
  model_->train();
  if (!score) return std::nullopt;
  auto sums =
      torch::tensor({score->loss_sum, static_cast<double>(score->correct), static_cast<double>(score->count)},
                    torch::kFloat64);
  session_.allreduce_(sums, ReduceOp::sum);
  const double loss = (sums[0] / sums[2]).item<double>();
  const double accuracy = (sums[1] / sums[2]).item<double>();
  if (log != nullptr) {
    log->metrics.write(MetricsLog::Evaluation{epoch.step, epoch.number, loss, accuracy});
    const auto shown = std::isfinite(loss)
                           ? fmt::format("held-out loss {:.4f}{}", loss, data_.shape.text ? " nats/byte" : "")
                           : "the held-out loss is not finite";
    log->progress.say(fmt::format("epoch {}  step {}  {}  accuracy {:.2f} %", epoch.number, epoch.step, shown,
                                  100 * accuracy));
  }
  return Result{loss, false};
}

// Shows a sample of the text that a gpt generates.
void BuiltInTraining::finish(RunLog& log) {
  if (options_.sample == 0) return;
  const Span span(session_.timeline(), Category::evaluation, "sample");
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed);
  const std::string prompt = "The ";
  std::istringstream lines(prompt + generate(*model_, prompt, options_.sample, 0.8, generator));
  std::string text = "\nA sample of the generated text:";
  for (std::string line; std::getline(lines, line);) text += "\n" + printable(line);  // The bytes may be any.
  log.progress.say(text);
}

}  // namespace farandole
