#include "farandole/estimator/model/scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// Places in the sums of a label: those of classes, and those of values.
enum : std::int64_t { values_sum, right_sum, top_sum, log_loss_sum };
enum : std::int64_t { error_sum = 1, square_error_sum, label_sum, square_label_sum };
constexpr std::int64_t top_k = 5;
constexpr std::array metric_names = {"accuracy", "top_5", "log_loss", "precision", "recall",
                                     "f1",       "mae",   "rmse",     "r2"};
constexpr std::array more_metrics = {"precision", "recall", "f1"};  // Only if they are asked for.

// A script or a loss as a metric.
MetricFunction script_metric(const std::string& file) {
  const auto script = std::make_shared<LossFunction>(file, "metric");
  return [script](const torch::Tensor& output, const torch::Tensor& label) {
    return script->of_rows(output, script->labels(label, output));
  };
}

}  // namespace

Scores::Scores(const ScoreOptions& options) : options_(options) {
  auto functions = options.functions;
  for (auto& metric : options_.metrics) {
    if (const auto equals = metric.find('='); equals != metric.npos) {
      const auto name = metric.substr(0, equals);
      if (!functions.emplace(name, script_metric(metric.substr(equals + 1))).second)
        throw UserError(fmt::format("there are two metrics {}; give each another name", name));
      metric = name;
    } else if (!functions.contains(metric) &&
               std::find(metric_names.begin(), metric_names.end(), metric) == metric_names.end()) {
      throw UserError(fmt::format("there is no metric {}; the metrics are {}, and NAME=FILE for a script",
                                  metric, fmt::join(metric_names, ", ")));
    }
  }
  for (const auto& label : options_.labels) {
    auto& own = functions_.emplace_back();
    const auto prefix = label + "__";
    for (const auto& [name, function] : functions) {
      if (name.starts_with(prefix)) own.emplace(name.substr(prefix.size()), function);
      const auto of_a_label = std::any_of(options_.labels.begin(), options_.labels.end(),
                                          [&](const auto& other) { return name.starts_with(other + "__"); });
      if (!of_a_label) own.emplace(name, function);
    }
    sums_.emplace_back().custom = torch::zeros({static_cast<std::int64_t>(own.size())}, torch::kFloat64);
  }
}

bool Scores::wants(const std::string& name) const {
  if (options_.all) return true;
  if (options_.metrics.empty())
    return std::find(more_metrics.begin(), more_metrics.end(), name) == more_metrics.end();
  return std::find(options_.metrics.begin(), options_.metrics.end(), name) != options_.metrics.end();
}

void Scores::add_classes(Sums& sums, const torch::Tensor& output, const torch::Tensor& label) const {
  const auto classes = output.size(1);
  const auto scores = output.movedim(1, -1).reshape({-1, classes}).to(torch::kFloat64);
  const auto truth = label.reshape({-1}), guess = scores.argmax(1);
  const auto right = guess == truth;
  sums.values[values_sum] += static_cast<double>(truth.numel());
  sums.values[right_sum] += right.sum();
  if (classes > top_k && wants("top_5"))
    sums.values[top_sum] += (std::get<1>(scores.topk(top_k, 1)) == truth.unsqueeze(1)).any(1).sum();
  if (wants("log_loss"))
    sums.values[log_loss_sum] -= scores.log_softmax(1).gather(1, truth.unsqueeze(1)).sum();
  const auto count = [&](const torch::Tensor& of) { return torch::bincount(of, {}, classes); };
  const auto counts = torch::stack({count(truth), count(guess), count(truth.masked_select(right))});
  sums.counts = sums.counts.defined() ? sums.counts + counts : counts;
  if (!options_.all) return;
  const auto pairs =
      torch::bincount(truth * classes + guess, {}, classes * classes).reshape({classes, classes});
  sums.confusion = sums.confusion.defined() ? sums.confusion + pairs : pairs;
}

void Scores::add(const Objective::Losses& losses, const Rows& rows) {
  const torch::NoGradGuard no_grad;
  totals_[0] += static_cast<double>(rows.size());
  totals_[1] += losses.sum.detach();
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    auto& sums = sums_[i].values;
    const auto output = losses.outputs[i].detach();
    const auto& label = losses.labels[i];
    std::int64_t place = 0;
    for (const auto& [name, function] : functions_[i]) {
      const auto value = function(output, label).to(torch::kFloat64);
      sums_[i].custom[place++] += value.dim() == 0 ? value * static_cast<double>(rows.size()) : value.sum();
    }
    if (options_.classes[i]) {
      add_classes(sums_[i], output, label);
    } else if (output.numel() == label.numel()) {
      const auto values = label.to(torch::kFloat64).flatten(),
                 error = output.to(torch::kFloat64).flatten() - values;
      sums[values_sum] += static_cast<double>(values.numel());
      sums[error_sum] += error.abs().sum();
      sums[square_error_sum] += error.square().sum();
      sums[label_sum] += values.sum();
      sums[square_label_sum] += values.square().sum();
    }
  }
}

void Scores::report(Evaluation& result, const std::string& label, const std::string& metric,
                    double value) const {
  result.metrics[options_.labels.size() > 1 ? label + "__" + metric : metric] = value;
}

// Precision, recall and F1 are means over the classes that occur as a label or as a prediction.
void Scores::report_classes(Session& session, Sums& sums, const std::string& label,
                            Evaluation& result) const {
  auto classes = torch::tensor({sums.counts.defined() ? sums.counts.size(1) : 0});
  session.allreduce_(classes, ReduceOp::max);
  const auto n = classes.item<std::int64_t>();
  const double values = sums.values[values_sum].item<double>();
  if (n == 0) return;
  if (!sums.counts.defined()) sums.counts = torch::zeros({3, n}, torch::kInt64);
  session.allreduce_(sums.counts, ReduceOp::sum);
  const auto counts = sums.counts.to(torch::kFloat64);
  const auto truth = counts[0], guess = counts[1], both = counts[2], one = torch::ones({}, torch::kFloat64);
  const auto occurs = truth + guess > 0;
  const auto mean = [&](const torch::Tensor& of) { return of.masked_select(occurs).mean().item<double>(); };
  const auto put = [&](const char* name, double value) {
    if (wants(name)) report(result, label, name, value);
  };
  put("accuracy", sums.values[right_sum].item<double>() / values);
  put("log_loss", sums.values[log_loss_sum].item<double>() / values);
  if (n > top_k) put("top_5", sums.values[top_sum].item<double>() / values);
  put("precision", mean(both / torch::maximum(guess, one)));
  put("recall", mean(both / torch::maximum(truth, one)));
  put("f1", mean(2 * both / torch::maximum(truth + guess, one)));
  if (!options_.all) return;
  if (!sums.confusion.defined()) sums.confusion = torch::zeros({n, n}, torch::kInt64);
  session.allreduce_(sums.confusion, ReduceOp::sum);
  auto& rows = result.confusion[label];
  for (std::int64_t row = 0; row < n; ++row) {
    const auto of_class = sums.confusion[row].contiguous();
    rows.emplace_back(of_class.data_ptr<std::int64_t>(), of_class.data_ptr<std::int64_t>() + n);
  }
}

void Scores::add(Objective& objective, TableReader& reader, std::int64_t batches) {
  for (std::int64_t done = 0; batches == 0 || done < batches; ++done) {
    auto batch = reader.next();
    if (!batch) return;
    const auto rows = objective.tensors().take(*std::move(batch));
    if (rows.size() > 0) add(objective.of(rows), rows);
  }
}

Evaluation Scores::reduce(Session& session) {
  session.allreduce_(totals_, ReduceOp::sum);
  const double rows = totals_[0].item<double>();
  Evaluation result;
  result.rows = static_cast<std::int64_t>(rows);
  result.loss = totals_[1].item<double>() / rows;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const auto& label = options_.labels[i];
    auto& sums = sums_[i];
    std::int64_t place = 0;
    if (!functions_[i].empty()) session.allreduce_(sums.custom, ReduceOp::sum);
    for (const auto& [name, function] : functions_[i])
      report(result, label, name, sums.custom[place++].item<double>() / rows);
    session.allreduce_(sums.values, ReduceOp::sum);
    if (options_.classes[i]) {
      report_classes(session, sums, label, result);
      continue;
    }
    const auto sum = [&](std::int64_t at) { return sums.values[at].item<double>(); };
    const double values = sum(values_sum);
    if (values == 0) continue;
    const double mean = sum(label_sum) / values, variance = sum(square_label_sum) - values * mean * mean;
    if (wants("mae")) report(result, label, "mae", sum(error_sum) / values);
    if (wants("rmse")) report(result, label, "rmse", std::sqrt(sum(square_error_sum) / values));
    if (wants("r2") && variance > 0) report(result, label, "r2", 1 - sum(square_error_sum) / variance);
  }
  return result;
}

}  // namespace farandole
