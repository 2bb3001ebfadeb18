// Text from a trained gpt, byte by byte. Used by the thread that uses the model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <torch/torch.h>

#include "farandole/trainer/models/model.h"

namespace farandole {

// `bytes` bytes that follow `prompt` (empty: a line begins), each drawn from softmax(logits / temperature)
// given the last `context` bytes; temperature 0 takes the likeliest. Runs in evaluation mode and leaves the
// model's mode as it was. Throws UserError where the model is no gpt, or bytes or temperature are negative.
std::string generate(Model& model, std::string_view prompt, std::int64_t bytes, double temperature,
                     torch::Generator generator);

}  // namespace farandole
