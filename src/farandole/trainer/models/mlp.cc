#include "farandole/trainer/models/mlp.h"

#include <string>

namespace farandole {

Mlp::Mlp(std::int64_t inputs, std::int64_t width, std::int64_t layers, std::int64_t classes) {
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto out = i + 1 == layers ? classes : width;
    layers_.push_back(register_module("fc" + std::to_string(i + 1), Linear(i == 0 ? inputs : width, out)));
  }
}

torch::Tensor Mlp::forward(torch::Tensor x) {
  x = layers_.front()(x.flatten(1));
  for (std::size_t i = 1; i < layers_.size(); ++i) x = layers_[i](torch::relu(x));
  return x;
}

torch::Tensor Mlp::loss(const torch::Tensor& output, const torch::Tensor& y) {
  return torch::cross_entropy_loss(output, y);
}

}  // namespace farandole
