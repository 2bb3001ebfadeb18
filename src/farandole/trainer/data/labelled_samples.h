// Samples with labels, held in memory. Fetching is const and may be done from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <torch/torch.h>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

// The float that each of the 256 byte values stands for.
using ByteScale = std::array<float, 256>;

ByteScale plain_bytes();  // 0.0 … 255.0
ByteScale
mnist_scale();  // (x / 255 - 0.1307) / 0.3081, the constants of PyTorch's and Horovod's MNIST example

class LabelledSamples final : public Dataset {
 public:
  // x: contiguous float32 [n, …], or uint8 [n, …], which becomes float32 through `scale` batch by batch; y:
  // int64 [n].
  LabelledSamples(torch::Tensor x, torch::Tensor y, const ByteScale& scale = plain_bytes());

  std::int64_t size() const override { return y_.size(0); }
  Batch get(std::span<const std::int64_t> indices) const override;

 private:
  torch::Tensor unpack(std::span<const std::int64_t> indices) const;

  torch::Tensor x_;
  torch::Tensor y_;
  ByteScale scale_;
};

// The first and the last part of n samples; the last holds `fraction` of them, and both hold at least one.
// Throws UserError (with `source` in it) where that cannot be.
std::int64_t first_part(std::int64_t n, double fraction, const std::string& source);

// The samples as training and held-out sets: x_test, y_test where defined, else the last `held_out` of x, y.
struct LabelledTensors {
  torch::Tensor x, y, x_test, y_test;
  std::int64_t classes = 0;
};
DataSplit split_samples(LabelledTensors tensors, const ByteScale& scale, double held_out,
                        const std::string& source);

}  // namespace farandole
