#include "farandole/train/embedding.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/utils.h>

#include "farandole/train/layers/slot_layer.h"

namespace farandole {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// `padding`: index of the row without a gradient; -1: none. Adds the rows in the same order as LibTorch.
struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& weight, const Tensor& indices,
                        std::int64_t padding) {
    context->save_for_backward({indices});
    context->saved_data["weight"] = weight;  // Unlike what is saved above, it may change before backward.
    context->saved_data["padding"] = padding;
    return torch::embedding(weight, indices, padding);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const auto indices = context->get_saved_variables()[0];
    const auto weight = context->saved_data["weight"].toTensor();
    const auto padding = context->saved_data["padding"].toInt();
    auto [memory, add] = place_for(weight);
    if (!memory.defined())
      return {at::embedding_dense_backward(outputs[0], indices, weight.size(0), padding, false), {}, {}};
    auto rows = outputs[0].reshape({-1, weight.size(1)});
    if (padding >= 0) rows = rows.masked_fill(indices.reshape({-1, 1}) == padding, 0);
    if (!add) memory.zero_();
    memory.index_add_(0, indices.reshape(-1), rows);
    return {add ? Tensor() : std::move(memory), {}, {}};
  }
};

}  // namespace

Tensor EmbeddingImpl::forward(const Tensor& indices) {
  const bool plain = !options.sparse() && !options.max_norm() && !options.scale_grad_by_freq();
  // Sums of many rows need more than 16 bits. On CPUs, LibTorch's have no more either.
  const bool exact = weight.is_cpu() || !at::isReducedFloatingType(weight.scalar_type());
  if (!plain || !exact || !computes_in_bucket(weight, {})) return torch::nn::EmbeddingImpl::forward(indices);
  return EmbeddingFunction::apply(weight, indices, options.padding_idx().value_or(-1));
}

std::shared_ptr<torch::nn::Module> EmbeddingImpl::clone(const std::optional<torch::Device>& device) const {
  return clone_as<EmbeddingImpl, torch::nn::EmbeddingImpl>(*this, device);
}

}  // namespace farandole
