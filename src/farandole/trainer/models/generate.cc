#include "farandole/trainer/models/generate.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <torch/utils.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/trainer/models/gpt.h"

namespace farandole {
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
