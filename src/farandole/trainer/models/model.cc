#include "farandole/trainer/models/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/trainer/models/classifiers.h"
#include "farandole/trainer/models/gpt.h"

namespace farandole {
namespace {

void check_range(std::string_view option, std::int64_t value, std::int64_t most) {
  if (value >= 1 && value <= most) return;
  throw UserError(fmt::format("--{} is {}; it must be between 1 and {}", option, value, most));
}

void check_samples(const ModelOptions& options, const DataShape& data) {
  if (!data.text) return;
  throw UserError(fmt::format(
      "--model {} needs samples with labels, and --data is text; use --model gpt, or name a folder "
      "of IDX files or a table",
      options.name));
}

std::shared_ptr<Model> make_mnist(const ModelOptions& options, const DataShape& data) {
  check_samples(options, data);
  if (data.input != std::vector<std::int64_t>{1, 28, 28} || data.classes > 10) {
    throw UserError(fmt::format(
        "--model mnist needs samples of [1, 28, 28] and 10 classes, and --data has [{}] and {}; use "
        "--model mlp, which accepts any",
        fmt::join(data.input, ", "), data.classes));
  }
  return std::make_shared<MnistNet>();
}

std::shared_ptr<Model> make_mlp(const ModelOptions& options, const DataShape& data) {
  check_samples(options, data);
  check_range("layers", options.layers, 1000);
  check_range("width", options.width, 1 << 17);
  if (data.classes < 2) {
    throw UserError(
        fmt::format("--data has {} class of labels; a classifier needs at least 2", data.classes));
  }
  const auto inputs =
      std::accumulate(data.input.begin(), data.input.end(), std::int64_t{1}, std::multiplies<>());
  return std::make_shared<Mlp>(inputs, options.width, options.layers, data.classes);
}

std::shared_ptr<Model> make_gpt(const ModelOptions& options, const DataShape& data) {
  if (!data.text) {
    throw UserError(
        "--model gpt needs text, and --data holds samples with labels; use --model mlp, or name a text");
  }
  check_range("layers", options.layers, 1000);
  check_range("width", options.width, 1 << 17);
  check_range("heads", options.heads, options.width);
  check_range("context", options.context, 1 << 20);
  if (options.width % options.heads != 0) {
    throw UserError(
        fmt::format("--heads {} does not divide --width {}; each head needs an equal share of the width",
                    options.heads, options.width));
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    throw UserError(fmt::format("--dropout is {}; it must be at least 0 and below 1", options.dropout));
  }
  if (data.input != std::vector{options.context}) {
    throw UserError(fmt::format("--context {}: the samples of --data have [{}] bytes", options.context,
                                fmt::join(data.input, ", ")));
  }
  return std::make_shared<Gpt>(options);
}

}  // namespace

Score Model::score(const torch::Tensor& output, const torch::Tensor& y) {
  Score score;
  score.count = y.numel();
  score.loss_sum = loss(output, y).item<double>() * static_cast<double>(score.count);
  score.correct = output.argmax(-1).eq(y).sum().item<std::int64_t>();
  return score;
}

std::shared_ptr<Model> make_model(const ModelOptions& options, const DataShape& data) {
  if (options.name == "mnist") return make_mnist(options, data);
  if (options.name == "mlp") return make_mlp(options, data);
  if (options.name == "gpt") return make_gpt(options, data);
  const auto nearest = nearest_name(options.name, {"mnist", "mlp", "gpt"});
  throw UserError(fmt::format("--model {} does not exist; use mnist, mlp or gpt{}", options.name,
                              nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

void use_channels_last(torch::nn::Module& model) {
  for (auto& parameter : model.parameters())
    if (parameter.dim() == 4)
      parameter.set_data(parameter.detach().contiguous(torch::MemoryFormat::ChannelsLast));
}

}  // namespace farandole
