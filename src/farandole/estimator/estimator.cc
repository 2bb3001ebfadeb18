#include "farandole/estimator/estimator.h"

#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/text/json.h"
#include "farandole/estimator/apply.h"
#include "farandole/estimator/fit.h"
#include "farandole/estimator/launch.h"
#include "farandole/estimator/models/model.h"
#include "farandole/estimator/rows.h"
#include "farandole/estimator/store.h"
#include "farandole/train/run/checkpoint_schedule.h"
#include "farandole/trainer/loop_option_table.h"

namespace farandole {
namespace {

void require_option(bool good, const std::string& message) {
  if (!good) throw UserError(message);
}

}  // namespace

void EstimatorOptions::check() const {
  require_option(!model.empty(), "no model given; name a file of torch.export or TorchScript with --model");
  require_option(!features.empty(), "no features given; name columns with --features");
  for (const auto& feature : features) Feature::parse(feature);
  require_option(!labels.empty(), "no label given; name a column with --label");
  const auto given = [](const char* option, std::size_t values, std::size_t for_labels) {
    return fmt::format("{} has {} values for {} label{}; give one for each", option, values, for_labels,
                       for_labels == 1 ? "" : "s");
  };
  require_option(losses.size() == 1 || losses.size() == labels.size(),
                 given("--loss", losses.size(), labels.size()));
  require_option(loss_weights.empty() || loss_weights.size() == labels.size(),
                 given("--loss-weights", loss_weights.size(), labels.size()));
  check_one_of("optimizer", optimizer, {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lbfgs"});
  check_one_of("schedule", schedule, {"constant", "step", "cosine", "polynomial", "one_cycle"});
  check_loop_options(*this);
  check_one_of("nan", nan, {"error", "skip", "keep"});
  check_range("lr-step-epochs", lr_step_epochs, 1);
  check_range("validation-batch-size", validation_batch, 0);
  check_range("validation-steps", validation_steps, 0);
  check_range("train-steps", train_steps, 0);
  check_range("patience", patience, 0);
  require_option(
      CheckpointInterval::parse(checkpoint_every).epochs() <= 1,
      "--checkpoint-every needs steps, a time or auto, because a checkpoint follows each epoch anyway");
  require_option(lr > 0, "--lr must be positive");
  require_option(weight_decay == 0 || optimizer != "lbfgs",
                 "--weight-decay is no option of lbfgs; choose another optimizer");
  require_option(precision != "float16" || optimizer != "lbfgs",
                 "--precision float16 is no option of lbfgs; use bfloat16");
  require_option(
      warmup_steps == 0 || schedule != "one_cycle",
      "--warmup-steps is no option of --schedule one_cycle, which begins with a warm-up of its own; leave it out");
  require_option(validation >= 0 && validation < 1,
                 "--validation must be a fraction of the rows, at least 0 and less than 1");
  require_option(validation == 0 || validation_column.empty(),
                 "give --validation or --validation-column, not both");
  require_option(
      input_shapes.empty() || input_shapes.size() == features.size(),
      fmt::format("--input-shapes has {} shapes for {} features; give one for each, separated by semicolons",
                  input_shapes.size(), features.size()));
  require_option(run.find('/') == run.npos && run != "." && run != "..", "--run must be a name without '/'");
}

TrainedModel::TrainedModel(const std::filesystem::path& store, const std::string& run) {
  std::optional<FitRecord> found;
  if (!run.empty()) {
    found = find_fit(store, run);
  } else {
    for (auto& fit : list_fits(store))
      if (fit.finished && (!found || found->changed_ns < fit.changed_ns)) found = std::move(fit);
    if (!found)
      throw UserError(
          fmt::format("the store {} has no finished run; run farandole fit first", store.string()));
  }
  if (!found->finished)
    throw UserError(fmt::format("run {} of {} has not finished; finish it with the same farandole fit",
                                found->id, store.string()));
  run_ = found->id;
  folder_ = found->folder;
  history_ = std::move(found->history);
}

std::filesystem::path TrainedModel::model() const {
  return published_model(folder_);
}

std::int64_t TrainedModel::transform(const std::string& table, const std::filesystem::path& output,
                                     const TransformOptions& options) const {
  return std::stoll(farandole::launch({.np = options.num_proc}, [&](Session& session, const std::string&) {
    return std::to_string(transform_on_rank(session, folder_, table, output, options));
  }));
}

Evaluation TrainedModel::evaluate(const std::string& table, const TransformOptions& options) const {
  return evaluation_from_json(
      farandole::launch({.np = options.num_proc}, [&](Session& session, const std::string&) {
        return evaluation_to_json(evaluate_on_rank(session, folder_, table, options));
      }));
}

Estimator::Estimator(EstimatorOptions options) : options_(std::move(options)) {
  options_.check();
}

TrainedModel Estimator::fit(const std::string& table) {
  const auto run = farandole::launch({.np = options_.num_proc}, [&](Session& session, const std::string&) {
    std::string id;
    fit_on_rank(
        session, options_, table, [] { return false; }, id);
    return exact_json_text(id);
  });
  return TrainedModel(options_.store, parse_json(run).get<std::string>());
}

}  // namespace farandole
