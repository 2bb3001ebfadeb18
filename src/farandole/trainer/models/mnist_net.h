// The convolutional network of the MNIST example of PyTorch and Horovod.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/types.h>

#include "farandole/train/linear.h"
#include "farandole/trainer/models/model.h"

namespace farandole {

// x float32 [n, 1, 28, 28] → log-probabilities [n, 10]. The 21,840 parameters have the names of the example.
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
