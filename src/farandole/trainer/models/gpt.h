// A byte-level decoder-only transformer with the layout, names and initialization of GPT-2, and the text
// that it generates.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>
#include <vector>

#include "farandole/train/embedding.h"
#include "farandole/train/linear.h"
#include "farandole/trainer/models/model.h"

namespace farandole {

struct GptBlock;

// x int64 [n, t] of bytes, t <= context → logits [n, t, 256] of the next byte at each position. Radford et
// al. 2019: token and position embeddings, pre-norm blocks of causal attention and a GELU MLP of size 4 ·
// width, a final norm, and an output layer that does not share the embedding's weights.
class Gpt final : public Model {
 public:
  // Uses layers, width, heads, context and dropout of `options`; make_model checks them.
  explicit Gpt(const ModelOptions& options);
  torch::Tensor forward(torch::Tensor x) override;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& y) override;
  std::int64_t context() const { return context_; }

 private:
  std::int64_t context_;
  double dropout_;
  Embedding wte_, wpe_;
  std::vector<std::shared_ptr<GptBlock>> blocks_;  // "h.0", "h.1", …
  torch::nn::LayerNorm ln_f_;
  Linear lm_head_;
};

// Returns `bytes` bytes that follow `prompt`; an empty prompt stands for the begin of a line. Each byte is
// drawn from softmax(logits / temperature), given the last `context` bytes; temperature 0 selects the most
// likely byte. The model runs in evaluation mode and then returns to its earlier mode.
// Throws: UserError if the model is not a gpt, or if bytes or temperature are negative.
std::string generate(Model& model, std::string_view prompt, std::int64_t bytes, double temperature,
                     torch::Generator generator);

}  // namespace farandole
