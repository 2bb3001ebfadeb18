#include "farandole/train/sync_batch_norm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/utils.h>

#include "farandole/base/error.h"
#include "farandole/train/collectives_internals.h"

namespace farandole {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<std::int64_t> all_but_features(const Tensor& input) {
  std::vector<std::int64_t> dimensions = {0};
  for (std::int64_t d = 2; d < input.dim(); ++d) dimensions.push_back(d);
  return dimensions;
}

// Returns one value per feature in a shape that broadcasts over the input.
Tensor by_feature(const Tensor& values, const Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

// `sums` are on the CPU, also if the layer computes on a GPU.
void sum_over_ranks(TensorCollectives& ranks, const char* name, Tensor& sums) {
  communicator_of(ranks).allreduce(name, sums.data_ptr(), static_cast<std::size_t>(sums.numel()),
                                   DType::float64, ReduceOp::sum);
}

// Statistics of the batches of all ranks.
struct Statistics {
  double count;  // Number of values per feature.
  Tensor mean, var;
};

// Each rank's mean and variance are exact for its values. Their sums are merged in float64. The variance then
// has 16 digits less twice the logarithm of |mean| / deviation.
Statistics gather_statistics(TensorCollectives& ranks, const Tensor& input) {
  const std::int64_t features = input.size(1);
  auto sums = torch::zeros({2 * features + 1}, torch::kFloat64);
  if (input.numel() > 0) {
    const double count = static_cast<double>(input.numel() / features);
    auto [var, mean] = torch::var_mean(input, all_but_features(input), /*unbiased=*/false);
    mean = mean.to(torch::kFloat64);
    sums.narrow(0, 0, features).copy_(mean * count);
    sums.narrow(0, features, features).copy_((var.to(torch::kFloat64) + mean * mean) * count);
    sums[2 * features] = count;
  }
  sum_over_ranks(ranks, "batch norm statistics", sums);
  const double count = sums[2 * features].item<double>();
  if (count < 2)
    throw UserError(fmt::format(
        "SyncBatchNorm: training needs at least two values per feature, but all ranks together have {}",
        count));
  const auto mean = sums.narrow(0, 0, features) / count;
  const auto var = (sums.narrow(0, features, features) / count - mean * mean).clamp_min(0);
  return {count, mean.to(input.device()), var.to(input.device())};
}

struct Normalize : torch::autograd::Function<Normalize> {
  // `type`: type of weight, bias and statistics. Pointers are stored as integers, because the context
  // can only store those.
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const std::optional<Tensor>& weight,
                        const std::optional<Tensor>& bias, const Tensor& mean, const Tensor& var,
                        double count, double eps, std::int64_t ranks) {
    ctx->save_for_backward({input, weight.value_or(Tensor()), mean, var});
    ctx->saved_data["count"] = count;
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["ranks"] = ranks;
    if (input.numel() == 0) return torch::empty_like(input);
    return torch::batch_norm(input, weight, bias, mean, var, /*training=*/false, 0, eps, false);
  }

  // With xhat = (x − mean) / σ, and means over the values of all ranks:
  //   ∂x = weight / σ · (∂y − mean(∂y) − xhat · mean(∂y · xhat))
  // after Ioffe and Szegedy, "Batch Normalization", 2015.
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto &input = saved[0], &weight = saved[1], &mean = saved[2], &var = saved[3];
    const double count = ctx->saved_data["count"].toDouble(), eps = ctx->saved_data["eps"].toDouble();
    auto& ranks = *reinterpret_cast<TensorCollectives*>(ctx->saved_data["ranks"].toInt());
    const auto type = mean.scalar_type();
    const std::int64_t features = mean.numel();
    const auto gradient = gradients[0].to(type), x = input.to(type);
    const auto inverse = (var + eps).rsqrt();
    auto own = torch::zeros({2, features}, mean.options());
    if (input.numel() > 0) {
      const auto sums = at::native_batch_norm_backward(gradient, x, weight, mean, var, {}, {},
                                                       /*train=*/false, eps, {false, true, true});
      own[0].copy_(std::get<2>(sums));
      own[1].copy_(std::get<1>(sums));
    }
    auto all = own.to(torch::kCPU, torch::kFloat64, /*non_blocking=*/false, /*copy=*/true);
    sum_over_ranks(ranks, "batch norm gradients", all);
    all = (all / count).to(mean.device(), type);
    const auto scale = weight.defined() ? weight * inverse : inverse;
    auto result = (x - by_feature(mean, x)).mul_(by_feature(-scale * inverse * all[1], x));
    result.addcmul_(gradient, by_feature(scale, x)).sub_(by_feature(scale * all[0], x));
    return {result.to(input.scalar_type()),
            weight.defined() ? own[1] : Tensor(),
            weight.defined() ? own[0] : Tensor(),
            {},
            {},
            {},
            {},
            {}};
  }
};

SyncBatchNormImpl::Tensors fresh_tensors(const torch::nn::BatchNormOptions& options) {
  SyncBatchNormImpl::Tensors tensors;
  if (options.affine()) {
    tensors.weight = torch::ones({options.num_features()});
    tensors.bias = torch::zeros({options.num_features()});
  }
  if (options.track_running_stats()) {
    tensors.running_mean = torch::zeros({options.num_features()});
    tensors.running_var = torch::ones({options.num_features()});
    tensors.num_batches_tracked = torch::tensor(0, torch::kLong);
  }
  return tensors;
}

// Returns nullptr if the module is not a `Norm`.
template <class Norm>
std::shared_ptr<SyncBatchNormImpl> converted(torch::nn::Module& module, TensorCollectives& ranks) {
  const auto* norm = module.as<Norm>();
  if (norm == nullptr) return nullptr;
  auto result = std::make_shared<SyncBatchNormImpl>(
      ranks, norm->options,
      SyncBatchNormImpl::Tensors{norm->weight, norm->bias, norm->running_mean, norm->running_var,
                                 norm->num_batches_tracked});
  result->train(norm->is_training());
  return result;
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(TensorCollectives& ranks, const torch::nn::BatchNormOptions& with)
    : SyncBatchNormImpl(ranks, with, fresh_tensors(with)) {}

SyncBatchNormImpl::SyncBatchNormImpl(TensorCollectives& ranks, const torch::nn::BatchNormOptions& with,
                                     const Tensors& tensors)
    : options(with), ranks_(&ranks) {
  take(tensors);
}

void SyncBatchNormImpl::reset() {
  take(fresh_tensors(options));
}

void SyncBatchNormImpl::take(const Tensors& tensors) {
  const auto trains = [](const Tensor& tensor) { return tensor.defined(); };
  weight = register_parameter("weight", tensors.weight, trains(tensors.weight));
  bias = register_parameter("bias", tensors.bias, trains(tensors.bias));
  running_mean = register_buffer("running_mean", tensors.running_mean);
  running_var = register_buffer("running_var", tensors.running_var);
  num_batches_tracked = register_buffer("num_batches_tracked", tensors.num_batches_tracked);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "farandole::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ")";
}

// Returns how much of the running statistics the batch replaces.
double SyncBatchNormImpl::count_batch() {
  num_batches_tracked += 1;
  return options.momentum() ? *options.momentum() : 1.0 / num_batches_tracked.item<double>();
}

Tensor SyncBatchNormImpl::forward(const Tensor& input) {
  if (input.dim() < 2 || input.dim() > 5 || input.size(1) != options.num_features())
    throw UserError(fmt::format("SyncBatchNorm: the input has shape [{}], but must be [n, {}, …]",
                                fmt::join(input.sizes(), ", "), options.num_features()));
  const bool tracks = running_mean.defined();
  if (!is_training())
    return torch::batch_norm(input, weight, bias, running_mean, running_var, !tracks, 0, options.eps(),
                             false);
  // Statistics in half precision would be too inaccurate.
  const bool half = input.scalar_type() == torch::kHalf || input.scalar_type() == torch::kBFloat16;
  const auto type = half ? torch::kFloat32 : input.scalar_type();
  const auto all = gather_statistics(*ranks_, input.detach().to(type));
  if (tracks) {
    const torch::NoGradGuard no_grad;
    const double factor = count_batch();
    const auto unbiased = all.var * (all.count / (all.count - 1));
    running_mean.mul_(1 - factor).add_(all.mean.to(running_mean.scalar_type()), factor);
    running_var.mul_(1 - factor).add_(unbiased.to(running_var.scalar_type()), factor);
  }
  const auto as_type = [&](const Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor.to(type)) : std::nullopt;
  };
  return Normalize::apply(input, as_type(weight), as_type(bias), all.mean.to(type), all.var.to(type),
                          all.count, options.eps(), reinterpret_cast<std::int64_t>(ranks_));
}

torch::nn::Sequential convert_sync_batchnorm(const torch::nn::Sequential& layers, TensorCollectives& ranks) {
  torch::nn::Sequential result;
  const auto children = layers->named_children();
  auto layer = layers->begin();
  for (const auto& child : children) {
    auto norm = converted<torch::nn::BatchNorm1dImpl>(*child.value(), ranks);
    if (norm == nullptr) norm = converted<torch::nn::BatchNorm2dImpl>(*child.value(), ranks);
    if (norm == nullptr) norm = converted<torch::nn::BatchNorm3dImpl>(*child.value(), ranks);
    result->push_back(std::string(child.key()),
                      norm != nullptr ? torch::nn::AnyModule(norm) : torch::nn::AnyModule(*layer));
    ++layer;
  }
  result->train(layers->is_training());
  return result;
}

}  // namespace farandole
