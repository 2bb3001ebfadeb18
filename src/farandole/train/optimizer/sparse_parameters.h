// Which parameters get sparse gradients. Usable from any thread.
#pragma once

#include <string>
#include <torch/torch.h>
#include <vector>

namespace farandole {

// The weights of all Embedding and EmbeddingBag modules made with sparse(true), by their names in
// named_parameters(): for DistributedOptimizerOptions::sparse_parameters.
std::vector<std::string> sparse_parameters(const torch::nn::Module& module);

}  // namespace farandole
