// A multi-layer perceptron for flattened samples.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <torch/types.h>
#include <vector>

#include "farandole/train/linear.h"
#include "farandole/trainer/models/model.h"

namespace farandole {

// x float32 [n, …] with `inputs` numbers per sample → logits [n, classes]. There are `layers` linear layers
// fc1, fc2, … with ReLU between them.
class Mlp final : public Model {
 public:
  Mlp(std::int64_t inputs, std::int64_t width, std::int64_t layers, std::int64_t classes);
  torch::Tensor forward(torch::Tensor x) override;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& y) override;

 private:
  std::vector<Linear> layers_;
};

}  // namespace farandole
