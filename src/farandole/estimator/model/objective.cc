#include "farandole/estimator/model/objective.h"

#include <fmt/format.h>

#include "farandole/base/error.h"

namespace farandole {

Objective::Objective(const std::filesystem::path& model, const DataTable& table,
                     const EstimatorOptions& options)
    : options_(options), model_(model), tensors_(table, options, true) {
  for (std::size_t i = 0; i < options.labels.size(); ++i)
    losses_.emplace_back(options.losses.size() == 1 ? options.losses.front() : options.losses.at(i));
}

Objective::Losses Objective::of(const Rows& rows) {
  Losses result;
  result.outputs = model_.forward(rows.inputs, losses_.size());
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    auto& loss = losses_[i];
    const auto& output = result.outputs[i];
    if (loss.classifies()) tensors_.check_labels(output, rows, i);
    const auto& label = result.labels.emplace_back(loss.labels(rows.labels[i], output));
    auto of_rows = loss.of_rows(output, label);
    if (of_rows.dim() == 0 && rows.weight.defined())
      throw UserError(fmt::format(
          "{} returns one value for all rows, so --sample-weight cannot be used; return one value for each row",
          loss.name()));
    auto sum = of_rows.dim() == 0      ? of_rows * static_cast<double>(rows.size())
               : rows.weight.defined() ? (of_rows * rows.weight).sum()
                                       : of_rows.sum();
    if (!options_.loss_weights.empty()) sum = sum * options_.loss_weights[i];
    result.sum = result.sum.defined() ? result.sum + sum : sum;
  }
  return result;
}

std::vector<bool> Objective::classifies() const {
  std::vector<bool> classes;
  for (const auto& loss : losses_) classes.push_back(loss.classifies());
  return classes;
}

}  // namespace farandole
