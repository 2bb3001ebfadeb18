#include "farandole/estimator/fit_history.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>

#include "farandole/base/text/json.h"
#include "farandole/train/run/run_directory.h"

namespace farandole {

void FitHistory::begin(std::int64_t step, std::int64_t epoch) {
  metrics_ = std::make_unique<MetricsLog>(record_.folder / "metrics.jsonl", step);
  std::erase_if(record_.history, [&](const EpochResult& result) { return result.epoch > epoch; });
  publish();
}

void FitHistory::add(std::int64_t step, std::int64_t epoch, double loss, const StepResult& result) {
  metrics_->write(MetricsLog::Training{
      step, epoch, loss, result.lr, static_cast<double>(result.rows) / result.seconds, 1e3 * result.seconds});
}

bool FitHistory::add(const EpochResult& result, const std::vector<ResourceUsage>& usage) {
  record_.history.push_back(result);
  MetricsLog::Values values{result.step, result.epoch, {}};
  if (result.validation_loss) values.values["eval_loss"] = *result.validation_loss;
  for (const auto& [name, value] : result.metrics) values.values["eval_" + name] = value;
  for (const auto& [name, value] : result.training_metrics) values.values["train_" + name] = value;
  if (!values.values.empty()) metrics_->write(values);
  metrics_->write(MetricsLog::Resources{result.step, result.epoch, usage});
  if (options_.verbose > 0) print(result);
  return (options_.on_epoch && !options_.on_epoch(result)) || out_of_patience();
}

bool FitHistory::out_of_patience() const {
  const auto best = std::ranges::min_element(record_.history, {}, score_of);
  return options_.patience > 0 && record_.history.end() - best > options_.patience;
}

void FitHistory::print(const EpochResult& result) const {
  std::string line = fmt::format("epoch {}  step {}  loss {:.4f}", result.epoch, result.step, result.loss);
  for (const auto& [name, value] : result.training_metrics)
    line += fmt::format("  training {} {:.4f}", name, value);
  if (result.validation_loss) line += fmt::format("  validation loss {:.4f}", *result.validation_loss);
  for (const auto& [name, value] : result.metrics) line += fmt::format("  {} {:.4f}", name, value);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void FitHistory::describe(Snapshot& snapshot, double score) const {
  snapshot.config = exact_json_text(record_.options);
  snapshot.versions = json_text(library_versions());
  snapshot.score = score;
  for (const auto& epoch : record_.history) {
    if (score_of(epoch) >= snapshot.best_score) continue;
    snapshot.best_score = score_of(epoch);
    snapshot.best_step = epoch.step;
  }
}

void FitHistory::publish() {
  write_fit(record_);
}

void FitHistory::finish() {
  record_.finished = true;
  publish();
}

}  // namespace farandole
