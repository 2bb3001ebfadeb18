// The models that learn the classes of samples.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/types.h>
#include <vector>

#include "farandole/train/linear.h"
#include "farandole/trainer/models/model.h"

namespace farandole {

// A multi-layer perceptron for flattened samples: x float32 [n, …] with `inputs` numbers per sample → logits
// [n, classes]. There are `layers` linear layers fc1, fc2, … with ReLU between them.
class Mlp final : public Model {
 public:
  Mlp(std::int64_t inputs, std::int64_t width, std::int64_t layers, std::int64_t classes);
  torch::Tensor forward(torch::Tensor x) override;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& y) override;

 private:
  std::vector<Linear> layers_;
};

// The convolutional network of the MNIST example of PyTorch and Horovod: x float32 [n, 1, 28, 28] →
// log-probabilities [n, 10]. The 21,840 parameters have the names of the example.
class MnistNet final : public Model {
 public:
  MnistNet();
  torch::Tensor forward(torch::Tensor x) override;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& y) override;

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Dropout2d conv2_drop_;
  Linear fc1_, fc2_;
};

}  // namespace farandole
