#include "farandole/estimator/scores.h"

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
enum : std::int64_t { error_sum = 1, square_error_sum };
constexpr std::int64_t top_k = 5;
constexpr std::int64_t most_confused_classes = 1000;  // The confusion of more classes needs too much memory.
constexpr std::array metric_names = {"accuracy", "top_5", "log_loss", "precision", "recall",
                                     "f1",       "mae",   "rmse",     "r2"};
constexpr std::array value_metrics = {"mae", "rmse", "r2"};         // The others are those of classes.
constexpr std::array more_metrics = {"precision", "recall", "f1"};  // Only if they are asked for.

template <class Names>
bool is_one_of(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Adds [rows, n] over the ranks. A rank that has seen no rows does not know n.
void add_over_ranks(Session& session, torch::Tensor& sums, std::int64_t rows, torch::Dtype dtype) {
  auto columns = torch::tensor({sums.defined() ? sums.size(1) : 0});
  session.allreduce_(columns, ReduceOp::max);
  const auto n = columns.item<std::int64_t>();
  if (n == 0) return;
  if (!sums.defined()) sums = torch::zeros({rows, n}, dtype);
  session.allreduce_(sums, ReduceOp::sum);
}

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
    } else if (!functions.contains(metric)) {
      if (!is_one_of(metric_names, metric))
        throw UserError(fmt::format("there is no metric {}; the metrics are {}, and NAME=FILE for a script",
                                    metric, fmt::join(metric_names, ", ")));
      const bool of_classes = !is_one_of(value_metrics, metric);
      if (std::find(options_.classes.begin(), options_.classes.end(), of_classes) == options_.classes.end())
        throw UserError(fmt::format(
            "the metric {} needs a label {}; choose another metric", metric,
            of_classes ? "that is a class (--loss nll or cross_entropy)" : "of numbers, not of classes"));
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
  return options_.metrics.empty() ? !is_one_of(more_metrics, name) : is_one_of(options_.metrics, name);
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
  const auto counts =
      torch::stack({count(truth), count(guess), count(truth.masked_select(right))}).to(torch::kFloat64);
  sums.columns = sums.columns.defined() ? sums.columns + counts : counts;
  if (!options_.all || classes > most_confused_classes) return;
  const auto pairs =
      torch::bincount(truth * classes + guess, {}, classes * classes).reshape({classes, classes});
  sums.confusion = sums.confusion.defined() ? sums.confusion + pairs : pairs;
}

void Scores::add_values(Sums& sums, const torch::Tensor& output, const torch::Tensor& label) const {
  const auto values = label.to(torch::kFloat64).reshape({label.size(0), -1}),
             error = output.to(torch::kFloat64).reshape(values.sizes()) - values;
  sums.values[values_sum] += static_cast<double>(values.numel());
  sums.values[error_sum] += error.abs().sum();
  sums.values[square_error_sum] += error.square().sum();
  const auto columns = torch::stack({values.sum(0), values.square().sum(0), error.square().sum(0)});
  sums.columns = sums.columns.defined() ? sums.columns + columns : columns;
}

void Scores::add(const ModelWithLosses::Losses& losses, const Rows& rows) {
  const torch::NoGradGuard no_grad;
  totals_[0] += static_cast<double>(rows.size());
  totals_[1] += losses.mean.detach().cpu().to(torch::kFloat64) * static_cast<double>(rows.size());
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const auto output = losses.outputs[i].detach().cpu();
    const auto label = losses.labels[i].cpu();
    std::int64_t place = 0;
    for (const auto& [name, function] : functions_[i]) {
      const auto value = function(output, label).to(torch::kFloat64);
      sums_[i].custom[place++] += value.dim() == 0 ? value * static_cast<double>(rows.size()) : value.sum();
    }
    if (options_.classes[i]) {
      add_classes(sums_[i], output, label);
    } else if (output.numel() == label.numel()) {
      add_values(sums_[i], output, label);
    }
  }
}

void Scores::report(Evaluation& result, const std::string& label, const std::string& metric,
                    double value) const {
  result.metrics[options_.labels.size() > 1 ? label + "__" + metric : metric] = value;
}

// Precision, recall and F1 are means over the classes that occur as a label or as a prediction.
void Scores::report_classes(const Sums& sums, const std::string& label, Evaluation& result) const {
  if (!sums.columns.defined()) return;
  const auto n = sums.columns.size(1);
  const double values = sums.values[values_sum].item<double>();
  const auto truth = sums.columns[0], guess = sums.columns[1], both = sums.columns[2],
             one = torch::ones({}, torch::kFloat64);
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
  if (!sums.confusion.defined()) return;
  auto& rows = result.confusion[label];
  for (std::int64_t row = 0; row < n; ++row) {
    const auto of_class = sums.confusion[row].contiguous();
    rows.emplace_back(of_class.data_ptr<std::int64_t>(), of_class.data_ptr<std::int64_t>() + n);
  }
}

// R2 is the mean over the numbers of a row, each with its own mean, as in scikit-learn. A label that is
// constant has none.
void Scores::report_values(const Sums& sums, const std::string& label, Evaluation& result) const {
  if (!sums.columns.defined()) return;
  const auto sum = [&](std::int64_t at) { return sums.values[at].item<double>(); };
  const double values = sum(values_sum), rows = values / static_cast<double>(sums.columns.size(1));
  if (wants("mae")) report(result, label, "mae", sum(error_sum) / values);
  if (wants("rmse")) report(result, label, "rmse", std::sqrt(sum(square_error_sum) / values));
  const auto squares = sums.columns[1], variance = squares - sums.columns[0].square() / rows;
  constexpr double rounding = 1e-13;
  const auto r2 = (1 - sums.columns[2] / variance).masked_select(variance > rounding * squares);
  if (wants("r2") && r2.numel() > 0) report(result, label, "r2", r2.mean().item<double>());
}

void Scores::add(ModelWithLosses& model, TableReader& reader, std::int64_t batches) {
  for (std::int64_t done = 0; batches == 0 || done < batches; ++done) {
    auto batch = reader.next();
    if (!batch) return;
    const auto rows = model.take(*std::move(batch));
    if (rows.size() > 0) add(model.of(rows), rows);
  }
}

void Scores::add_over_ranks(Session& session) {
  session.allreduce_(totals_, ReduceOp::sum);
  for (auto& sums : sums_) {
    session.allreduce_(sums.values, ReduceOp::sum);
    if (sums.custom.numel() > 0) session.allreduce_(sums.custom, ReduceOp::sum);
    farandole::add_over_ranks(session, sums.columns, 3, torch::kFloat64);
    const auto n = sums.columns.defined() ? sums.columns.size(1) : 0;
    if (options_.all && n <= most_confused_classes)
      farandole::add_over_ranks(session, sums.confusion, n, torch::kInt64);
  }
}

torch::Tensor Scores::sums(Session& session) const {
  auto all = *this;
  all.totals_ = totals_.clone();
  for (auto& sums : all.sums_)
    for (auto* tensor : {&sums.values, &sums.custom, &sums.columns, &sums.confusion})
      if (tensor->defined()) *tensor = tensor->clone();
  all.add_over_ranks(session);
  std::vector<torch::Tensor> parts{all.totals_};
  for (const auto& sums : all.sums_) {
    parts.insert(parts.end(), {sums.values, sums.custom});
    parts.push_back(sums.columns.defined() ? sums.columns.flatten() : torch::zeros({0}, torch::kFloat64));
    parts.push_back(torch::tensor({static_cast<double>(parts.back().numel())}, torch::kFloat64));
  }
  return torch::cat(parts);
}

void Scores::restore(const torch::Tensor& sums) {
  auto restored = *this;
  auto end = sums.numel();
  const auto take = [&](std::int64_t numbers) {
    end -= numbers;
    return end >= 0 ? sums.slice(0, end, end + numbers) : torch::zeros({numbers}, torch::kFloat64);
  };
  for (auto own = restored.sums_.rbegin(); own != restored.sums_.rend(); ++own) {
    const auto numbers = static_cast<std::int64_t>(take(1).item<double>());
    if (numbers > 0) own->columns = take(numbers).reshape({3, -1}).clone();
    own->custom = own->custom + take(own->custom.numel());
    own->values = own->values + take(own->values.numel());
  }
  restored.totals_ = totals_ + take(totals_.numel());
  if (end == 0) *this = std::move(restored);
}

Evaluation Scores::reduce(Session& session) {
  add_over_ranks(session);
  const double rows = totals_[0].item<double>();
  Evaluation result;
  result.rows = static_cast<std::int64_t>(rows);
  result.loss = totals_[1].item<double>() / rows;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const auto& label = options_.labels[i];
    const auto& sums = sums_[i];
    std::int64_t place = 0;
    for (const auto& [name, function] : functions_[i])
      report(result, label, name, sums.custom[place++].item<double>() / rows);
    if (options_.classes[i])
      report_classes(sums, label, result);
    else
      report_values(sums, label, result);
  }
  return result;
}

}  // namespace farandole
