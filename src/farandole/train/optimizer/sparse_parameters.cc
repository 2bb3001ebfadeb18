#include "farandole/train/optimizer/sparse_parameters.h"

namespace farandole {

std::vector<std::string> sparse_parameters(const torch::nn::Module& module) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& path, bool sparse) {
    if (sparse) names.push_back(path.empty() ? "weight" : path + ".weight");
  };
  if (const auto* own = module.as<torch::nn::EmbeddingImpl>(); own != nullptr) add("", own->options.sparse());
  if (const auto* own = module.as<torch::nn::EmbeddingBagImpl>(); own != nullptr)
    add("", own->options.sparse());
  for (const auto& child : module.named_children())
    for (const auto& name : sparse_parameters(*child.value())) names.push_back(child.key() + "." + name);
  return names;
}

}  // namespace farandole
