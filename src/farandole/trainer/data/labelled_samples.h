// Samples with labels in memory.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <torch/types.h>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

// The float value of each of the 256 byte values.
using ByteScale = std::array<float, 256>;

ByteScale plain_bytes();  // 0.0 … 255.0
ByteScale
mnist_scale();  // (x / 255 - 0.1307) / 0.3081, the constants of PyTorch's and Horovod's MNIST example

class LabelledSamples final : public Dataset {
 public:
  // x: contiguous float32 [n, …], or uint8 [n, …], which `scale` converts to float32 batch by
  // batch. y: int64 [n].
  LabelledSamples(torch::Tensor x, torch::Tensor y, const ByteScale& scale = plain_bytes());

  std::int64_t size() const override { return y_.size(0); }
  Batch get(std::span<const std::int64_t> indices) const override;

 private:
  torch::Tensor unpack(std::span<const std::int64_t> indices) const;

  torch::Tensor x_;
  torch::Tensor y_;
  ByteScale scale_;
};

// Splits n samples into a first and a last part and returns the size of the first. The last part has
// `fraction` of the samples; both parts have at least one.
// Throws: UserError (the message contains `source`) if that is not possible.
std::int64_t first_part(std::int64_t n, double fraction, const std::string& source);

// Training and held-out samples. If x_test and y_test are undefined, the last `held_out` of x and
// y is held out.
struct LabelledTensors {
  torch::Tensor x, y, x_test, y_test;
  std::int64_t classes = 0;
};
DataSplit split_samples(LabelledTensors tensors, const ByteScale& scale, double held_out,
                        const std::string& source);

}  // namespace farandole
