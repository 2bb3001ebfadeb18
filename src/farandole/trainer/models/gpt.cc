#include "farandole/trainer/models/gpt.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/utils.h>
#include <vector>

#include "farandole/base/error.h"

namespace farandole {

namespace nn = torch::nn;

namespace {

constexpr std::int64_t bytes = 256;

nn::LayerNorm norm(std::int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}));
}

}  // namespace

struct GptAttention final : nn::Module {
  GptAttention(const ModelOptions& options)
      : heads(options.heads),
        dropout(options.dropout),
        c_attn(register_module("c_attn", Linear(options.width, 3 * options.width))),
        c_proj(register_module("c_proj", Linear(options.width, options.width))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto n = x.size(0), t = x.size(1), width = x.size(2);
    const auto qkv = c_attn(x).view({n, t, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto y = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, is_training() ? dropout : 0.0,
                                                    /*is_causal=*/true);
    return torch::dropout(c_proj(y.transpose(1, 2).reshape({n, t, width})), dropout, is_training());
  }

  std::int64_t heads;
  double dropout;
  Linear c_attn, c_proj;
};

struct GptFeedForward final : nn::Module {
  GptFeedForward(const ModelOptions& options)
      : dropout(options.dropout),
        c_fc(register_module("c_fc", Linear(options.width, 4 * options.width))),
        c_proj(register_module("c_proj", Linear(4 * options.width, options.width))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::dropout(c_proj(torch::gelu(c_fc(x), "tanh")), dropout, is_training());
  }

  double dropout;
  Linear c_fc, c_proj;
};

struct GptBlock final : nn::Module {
  explicit GptBlock(const ModelOptions& options)
      : ln_1(register_module("ln_1", norm(options.width))),
        attn(register_module("attn", std::make_shared<GptAttention>(options))),
        ln_2(register_module("ln_2", norm(options.width))),
        mlp(register_module("mlp", std::make_shared<GptFeedForward>(options))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = x + attn->forward(ln_1(x));
    return x + mlp->forward(ln_2(x));
  }

  nn::LayerNorm ln_1;
  std::shared_ptr<GptAttention> attn;
  nn::LayerNorm ln_2;
  std::shared_ptr<GptFeedForward> mlp;
};

Gpt::Gpt(const ModelOptions& options)
    : context_(options.context),
      dropout_(options.dropout),
      wte_(register_module("wte", Embedding(bytes, options.width))),
      wpe_(register_module("wpe", Embedding(options.context, options.width))),
      ln_f_(nullptr),
      lm_head_(nullptr) {
  nn::ModuleList h = register_module("h", nn::ModuleList());
  for (std::int64_t i = 0; i < options.layers; ++i) {
    blocks_.push_back(std::make_shared<GptBlock>(options));
    h->push_back(blocks_.back());
  }
  ln_f_ = register_module("ln_f", norm(options.width));
  lm_head_ = register_module("lm_head", Linear(nn::LinearOptions(options.width, bytes).bias(false)));

  // Initialization of GPT-2: 2 · layers terms are added to the residual stream. Their weights are scaled so
  // that the sum has the variance of one term.
  torch::NoGradGuard no_grad;
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(options.layers));
  for (auto& parameter : named_parameters()) {
    auto& value = parameter.value();
    if (value.dim() > 1) {
      value.normal_(0, parameter.key().ends_with("c_proj.weight") ? residual : 0.02);
    } else if (parameter.key().ends_with("bias")) {
      value.zero_();
    }
  }
}

torch::Tensor Gpt::forward(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 2 && x.size(1) <= context_, "gpt takes [n, t] bytes with t <= ", context_, ", not ",
              x.sizes());
  x = wte_(x) + wpe_(torch::arange(x.size(1), x.options()));
  x = torch::dropout(x, dropout_, is_training());
  for (auto& block : blocks_) x = block->forward(x);
  return lm_head_(ln_f_(x));
}

torch::Tensor Gpt::loss(const torch::Tensor& output, const torch::Tensor& y) {
  return torch::cross_entropy_loss(output.flatten(0, 1), y.flatten());
}

namespace {

class EvaluationMode {
 public:
  explicit EvaluationMode(Model& model) : model_(model), training_(model.is_training()) { model_.eval(); }
  ~EvaluationMode() { model_.train(training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  Model& model_;
  bool training_;
};

std::int64_t next_byte(const torch::Tensor& logits, double temperature, const torch::Generator& generator) {
  if (temperature == 0) return logits.argmax().item<std::int64_t>();
  return torch::multinomial(torch::softmax(logits / temperature, 0), 1, false, generator)
      .item<std::int64_t>();
}

}  // namespace

std::string generate(Model& model, std::string_view prompt, std::int64_t bytes, double temperature,
                     torch::Generator generator) {
  auto* gpt = dynamic_cast<Gpt*>(&model);
  if (gpt == nullptr) throw UserError("only --model gpt generates text");
  if (bytes < 0) throw UserError(fmt::format("cannot generate {} bytes of text; give 0 or more", bytes));
  if (!(temperature >= 0) || std::isinf(temperature)) {
    throw UserError(fmt::format("the temperature is {}; it must be at least 0", temperature));
  }
  const EvaluationMode evaluation(model);
  const torch::NoGradGuard no_grad;
  const auto device = gpt->parameters().front().device();
  std::vector<std::int64_t> text;
  for (const char c : prompt) text.push_back(static_cast<unsigned char>(c));
  if (text.empty()) text.push_back('\n');
  std::string written;
  for (std::int64_t i = 0; i < bytes; ++i) {
    const auto seen = std::min(gpt->context(), static_cast<std::int64_t>(text.size()));
    const auto x = torch::from_blob(text.data() + (static_cast<std::int64_t>(text.size()) - seen), {1, seen},
                                    torch::kInt64);
    text.push_back(next_byte(gpt->forward(x.to(device))[0][-1].cpu(), temperature, generator));
    written.push_back(static_cast<char>(text.back()));
  }
  return written;
}

}  // namespace farandole
