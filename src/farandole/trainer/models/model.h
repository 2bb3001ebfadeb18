// The models that `farandole train` knows. One model is used by one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <torch/torch.h>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

struct ModelOptions {
  std::string name = "gpt";   // mnist | mlp | gpt
  std::int64_t layers = 2;    // gpt: blocks; mlp: linear layers
  std::int64_t width = 128;   // gpt: embedding; mlp: hidden units
  std::int64_t heads = 4;     // gpt
  std::int64_t context = 64;  // gpt: bytes
  double dropout = 0.0;       // gpt
};

// Sums over the predictions of a batch, so that they can be added over batches and ranks.
struct Score {
  double loss_sum = 0;       // nats
  std::int64_t correct = 0;  // predictions that hit the label
  std::int64_t count = 0;    // predictions: samples, or bytes of text
};

class Model : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor x) = 0;
  // Mean negative log-likelihood of `output` = forward(x) against y, a scalar with gradient.
  virtual torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& y) = 0;
  // Call in evaluation mode and without gradients.
  Score score(const torch::Tensor& output, const torch::Tensor& y);
};

// Parameters are initialised from torch's default generator. Throws UserError where the model and the data do
// not fit or a size makes no sense; the message names the option.
std::shared_ptr<Model> make_model(const ModelOptions& options, const DataShape& data);

}  // namespace farandole
