#include "farandole/trainer/models/classifiers.h"

#include <string>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>

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

namespace nn = torch::nn;

MnistNet::MnistNet()
    : conv1_(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 10, 5)))),
      conv2_(register_module("conv2", nn::Conv2d(nn::Conv2dOptions(10, 20, 5)))),
      conv2_drop_(register_module("conv2_drop", nn::Dropout2d())),
      fc1_(register_module("fc1", Linear(320, 50))),
      fc2_(register_module("fc2", Linear(50, 10))) {}

torch::Tensor MnistNet::forward(torch::Tensor x) {
  x = torch::relu(torch::max_pool2d(conv1_(x), 2));
  x = torch::relu(torch::max_pool2d(conv2_drop_(conv2_(x)), 2));
  x = torch::relu(fc1_(x.reshape({-1, 320})));
  x = torch::dropout(x, 0.5, is_training());
  return torch::log_softmax(fc2_(x), 1, torch::kFloat32);
}

torch::Tensor MnistNet::loss(const torch::Tensor& output, const torch::Tensor& y) {
  return torch::nll_loss(output, y);
}

}  // namespace farandole
