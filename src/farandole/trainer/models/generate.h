// Generates text with a trained gpt, byte by byte.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <torch/types.h>

#include "farandole/trainer/models/model.h"

namespace farandole {

// Returns `bytes` bytes that follow `prompt`; an empty prompt stands for the begin of a line. Each byte is
// drawn from softmax(logits / temperature), given the last `context` bytes; temperature 0 selects the most
// likely byte. The model runs in evaluation mode and then returns to its earlier mode.
// Throws: UserError if the model is not a gpt, or if bytes or temperature are negative.
std::string generate(Model& model, std::string_view prompt, std::int64_t bytes, double temperature,
                     torch::Generator generator);

}  // namespace farandole
