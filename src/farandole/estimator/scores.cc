#include "farandole/estimator/scores.h"

#include <algorithm>
#include <cmath>

namespace farandole {
namespace {

// Places in the sums.
enum : std::int64_t { rows_sum, loss_sum, first_sum, second_sum, third_sum, fourth_sum, values_sum };
constexpr std::int64_t top_k = 5;

}  // namespace

void Scores::add(const torch::Tensor& output, const torch::Tensor& label, double loss) {
  const torch::NoGradGuard no_grad;
  const auto put = [&](std::int64_t place, double value) { sums_[place] += value; };
  put(rows_sum, static_cast<double>(label.size(0)));
  put(loss_sum, loss);
  if (classes_) {
    const auto classes = output.size(1);
    const auto scores = output.detach().movedim(1, -1).reshape({-1, classes}).to(torch::kFloat64);
    const auto truth = label.reshape({-1});
    const auto guess = scores.argmax(1);
    put(first_sum, (guess == truth).sum().item<double>());
    if (classes > top_k)
      put(second_sum, (std::get<1>(scores.topk(top_k, 1)) == truth.unsqueeze(1)).any(1).sum().item<double>());
    put(third_sum, -scores.log_softmax(1).gather(1, truth.unsqueeze(1)).sum().item<double>());
    put(values_sum, static_cast<double>(truth.numel()));
    if (!confusion_.defined()) confusion_ = torch::zeros({classes, classes}, torch::kInt64);
    confusion_ += torch::bincount(truth * classes + guess, {}, classes * classes).reshape({classes, classes});
    return;
  }
  if (output.numel() != label.numel()) return;
  const auto values = label.to(torch::kFloat64).flatten(),
             error = output.detach().to(torch::kFloat64).flatten() - values;
  put(first_sum, error.abs().sum().item<double>());
  put(second_sum, error.square().sum().item<double>());
  put(third_sum, values.sum().item<double>());
  put(fourth_sum, values.square().sum().item<double>());
  put(values_sum, static_cast<double>(values.numel()));
}

Evaluation Scores::reduce(Session& session) {
  auto classes = torch::tensor({confusion_.defined() ? confusion_.size(0) : 0});
  session.allreduce_(sums_, ReduceOp::sum);
  session.allreduce_(classes, ReduceOp::max);
  const auto n = classes.item<std::int64_t>();
  Evaluation result;
  const auto sum = [&](std::int64_t place) { return sums_[place].item<double>(); };
  const double rows = sum(rows_sum), values = sum(values_sum);
  result.rows = static_cast<std::int64_t>(rows);
  result.loss = sum(loss_sum) / rows;
  if (n > 0) {
    if (!confusion_.defined()) confusion_ = torch::zeros({n, n}, torch::kInt64);
    session.allreduce_(confusion_, ReduceOp::sum);
    for (std::int64_t truth = 0; truth < n; ++truth) {
      const auto row = confusion_[truth].contiguous();
      result.confusion.emplace_back(row.data_ptr<std::int64_t>(), row.data_ptr<std::int64_t>() + n);
    }
    result.metrics = {{"accuracy", sum(first_sum) / values}, {"log_loss", sum(third_sum) / values}};
    if (n > top_k) result.metrics["top_5"] = sum(second_sum) / values;
  } else if (!classes_ && values > 0) {
    const double mean = sum(third_sum) / values, variance = sum(fourth_sum) - values * mean * mean;
    result.metrics = {{"mae", sum(first_sum) / values}, {"rmse", std::sqrt(sum(second_sum) / values)}};
    if (variance > 0) result.metrics["r2"] = 1 - sum(second_sum) / variance;
  }
  return result;
}

}  // namespace farandole
