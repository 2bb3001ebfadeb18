// The models of `farandole train`.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

struct ModelOptions {
  std::string name = "gpt";   // mnist | mlp | gpt
  std::int64_t layers = 2;    // Blocks (gpt) or linear layers (mlp).
  std::int64_t width = 128;   // Embedding size (gpt) or hidden units (mlp).
  std::int64_t heads = 4;     // Of gpt.
  std::int64_t context = 64;  // Bytes; of gpt.
  double dropout = 0.0;       // Of gpt.
};

// Sums over the predictions of a batch. Sums of several batches and ranks can be added.
struct Score {
  double loss_sum = 0;       // nats
  std::int64_t correct = 0;  // Predictions that equal the label.
  std::int64_t count = 0;    // Number of predictions: samples, or bytes of text.
};

class Model : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor x) = 0;
  // Returns the mean negative log-likelihood of y given `output` = forward(x), as a scalar with gradient.
  virtual torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& y) = 0;
  // Call this in evaluation mode and without gradients.
  Score score(const torch::Tensor& output, const torch::Tensor& y);
};

// Orders the weights of convolutions as GPUs compute them fastest, with the channels of a pixel side by side.
// Do so before making an optimizer.
void use_channels_last(torch::nn::Module& model);

// Parameters are initialized from torch's default generator.
// Throws: UserError if the model does not fit the data or a size is out of range; the
// message names the option.
std::shared_ptr<Model> make_model(const ModelOptions& options, const DataShape& data);

}  // namespace farandole
