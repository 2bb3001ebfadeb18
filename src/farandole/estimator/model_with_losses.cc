#include "farandole/estimator/model_with_losses.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/loss.h>

#include "farandole/base/error.h"
#include "farandole/estimator/models/model.h"

namespace farandole {

ModelWithLosses::ModelWithLosses(std::unique_ptr<ModelProgram> model, const DataTable& table,
                                 const ColumnOptions& options, torch::Device device, ClassNames classes)
    : options_(options),
      device_(device),
      classes_(std::move(classes)),
      model_(std::move(model)),
      tensors_(table, options, true) {
  for (std::size_t i = 0; i < options.labels.size(); ++i) {
    losses_.emplace_back(options.losses.size() == 1 ? options.losses.front() : options.losses.at(i), "loss",
                         device);
    if (classes_.contains(options.labels[i]) && losses_.back().compares_numbers()) {
      const auto text = table.first_text(options.labels[i]);
      throw UserError(fmt::format(
          "column {} of {} holds texts, which are classes, and --loss {} compares numbers{}; use "
          "--loss cross_entropy or nll, or another label",
          options.labels[i], table.source(), losses_.back().name(), text.empty() ? "" : ": " + text));
    }
  }
}

// Throws: UserError if the model does not have an output for each class.
void ModelWithLosses::check_classes(const torch::Tensor& output, std::size_t label) const {
  const auto classes = classes_.find(options_.labels[label]);
  if (classes == classes_.end() || output.dim() < 2) return;
  const auto& names = classes->second;
  if (names.size() == static_cast<std::size_t>(output.size(1))) return;
  constexpr std::size_t most_shown = 10;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(names.size(), most_shown));
  throw UserError(fmt::format(
      "column {} has {} classes ({}{}), and {} returns {} outputs for each row; export a model with "
      "an output for each class",
      classes->first, names.size(), fmt::join(names.begin(), names.begin() + shown, ", "),
      names.size() > most_shown ? ", …" : "", model_->file(), output.size(1)));
}

Rows ModelWithLosses::take(TableBatch batch) {
  auto rows = tensors_.take(std::move(batch));
  for (auto& input : rows.inputs) input = input.to(device_);
  for (auto& label : rows.labels) label = label.to(device_);
  if (rows.weight.defined()) rows.weight = rows.weight.to(device_);
  return rows;
}

ModelWithLosses::Losses ModelWithLosses::of(const Rows& rows) {
  Losses result;
  result.outputs = model_->forward(rows.inputs, losses_.size());
  for (auto& output : result.outputs)  // With --precision, they may have 16 bits.
    if (output.is_floating_point()) output = output.to(torch::kFloat32);
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    auto& loss = losses_[i];
    const auto& output = result.outputs[i];
    if (loss.classifies()) check_classes(output, i);
    if (loss.classifies()) tensors_.check_labels(output, rows, i);
    const auto& label = result.labels.emplace_back(loss.labels(rows.labels[i], output));
    auto mean = rows.weight.defined() ? loss.of_rows(output, label) : loss.mean(output, label);
    if (rows.weight.defined()) {
      if (mean.dim() == 0)
        throw UserError(fmt::format(
            "{} returns one value for all rows, so --sample-weight cannot be used; return one value for each row",
            loss.name()));
      mean = (mean * rows.weight).mean();
    }
    if (!options_.loss_weights.empty()) mean = mean * options_.loss_weights[i];
    result.mean = result.mean.defined() ? result.mean + mean : mean;
  }
  return result;
}

std::vector<bool> ModelWithLosses::classifies() const {
  std::vector<bool> classes;
  for (const auto& loss : losses_) classes.push_back(loss.classifies());
  return classes;
}

namespace {

constexpr std::array loss_names = {"nll",       "cross_entropy", "mse", "l1",
                                   "smooth_l1", "huber",         "bce", "bce_with_logits"};

}  // namespace

LossFunction::LossFunction(const std::string& name, const char* what, torch::Device device) : name_(name) {
  if (std::find(loss_names.begin(), loss_names.end(), name) != loss_names.end()) return;
  if (!std::filesystem::is_regular_file(name))
    throw UserError(
        fmt::format("there is no {} {}; the losses are {} and files of TorchScript or torch.export", what,
                    name, fmt::join(loss_names, ", ")));
  function_ = load_function(name, device);
}

bool LossFunction::compares_numbers() const {
  return name_ == "mse" || name_ == "l1" || name_ == "smooth_l1" || name_ == "huber";
}

torch::Tensor LossFunction::labels(const torch::Tensor& raw, const torch::Tensor& output) const {
  if (classifies()) return raw.to(torch::kInt64);
  if (function_) return raw;
  const auto label = raw.to(torch::kFloat32);
  return label.numel() == output.numel() && label.size(0) == output.size(0) ? label.reshape(output.sizes())
                                                                            : label;
}

torch::Tensor LossFunction::of_rows(const torch::Tensor& output, const torch::Tensor& label) {
  const auto all = values(output, label, at::Reduction::None);
  return all.dim() > 1 ? all.flatten(1).mean(1) : all;
}

// PyTorch's own reduction adds in another order than sum() does.
torch::Tensor LossFunction::mean(const torch::Tensor& output, const torch::Tensor& label) {
  const auto all = values(output, label, at::Reduction::Mean);
  return all.dim() == 0 ? all : all.mean();
}

torch::Tensor LossFunction::values(const torch::Tensor& output, const torch::Tensor& label,
                                   std::int64_t reduction) {
  const auto expected = [&] {
    auto shape = output.sizes().vec();
    if (classifies() && shape.size() > 1) shape.erase(shape.begin() + 1);
    return shape;
  };
  if (!function_ &&
      (output.dim() == 0 || (classifies() && output.dim() < 2) || label.sizes().vec() != expected()))
    throw UserError(fmt::format(
        "the model's outputs have shape [{}], and the labels have shape [{}]; --loss {} needs {}; choose another label "
        "column, loss or model",
        fmt::join(output.sizes().vec(), ", "), fmt::join(label.sizes().vec(), ", "), name_,
        classifies() ? "outputs [rows, classes, ...] and labels [rows, ...]" : "equal shapes"));
  if (function_) {
    try {
      return function_(output, label);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw UserError(fmt::format("{} failed on outputs of shape [{}] and labels of shape [{}]: {}", name_,
                                  fmt::join(output.sizes().vec(), ", "), fmt::join(label.sizes().vec(), ", "),
                                  brief(error)));
    }
  }
  if (name_ == "nll") return torch::nll_loss_nd(output, label, {}, reduction);
  if (name_ == "cross_entropy") return torch::cross_entropy_loss(output, label, {}, reduction);
  if (name_ == "mse") return torch::mse_loss(output, label, reduction);
  if (name_ == "l1") return torch::l1_loss(output, label, reduction);
  if (name_ == "smooth_l1") return torch::smooth_l1_loss(output, label, reduction);
  if (name_ == "huber") return torch::huber_loss(output, label, reduction);
  if (name_ == "bce") return torch::binary_cross_entropy(output, label, {}, reduction);
  return torch::binary_cross_entropy_with_logits(output, label, {}, {}, reduction);
}

}  // namespace farandole
