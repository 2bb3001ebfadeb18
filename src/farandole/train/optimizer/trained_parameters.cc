#include "farandole/train/optimizer/trained_parameters.h"

#include <algorithm>
#include <set>
#include <torch/optim.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/train/optimizer/tensor_bytes.h"

namespace farandole {

TrainedParameters::TrainedParameters(const torch::OrderedDict<std::string, torch::Tensor>& parameters) {
  std::set<const void*> seen;
  for (const auto& item : parameters) {
    if (!item.value().requires_grad() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    names.push_back(item.key());
    tensors.push_back(item.value());
  }
  if (names.empty()) throw UserError("DistributedOptimizer: no parameter requires a gradient");
}

TrainedParameters TrainedParameters::take_sparse(const std::vector<std::string>& wanted,
                                                 const torch::optim::Optimizer& optimizer) {
  if (wanted.empty()) return {};
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr ||
      dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr)
    throw UserError(
        "Adam and AdamW do not support sparse gradients; use SGD or Adagrad, or no sparse_parameters");
  for (const auto& name : wanted)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw UserError("sparse_parameters contains '" + name +
                      "', but no parameter with that name is trained");
  TrainedParameters sparse, dense;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool taken = std::find(wanted.begin(), wanted.end(), names[i]) != wanted.end();
    auto& side = taken ? sparse : dense;
    side.names.push_back(names[i]);
    side.tensors.push_back(tensors[i]);
  }
  *this = std::move(dense);
  return sparse;
}

std::vector<TensorSpec> TrainedParameters::specs() const {
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < names.size(); ++i)
    specs.push_back({names[i], tensors[i].sizes().vec(), dtype_of(tensors[i])});
  return specs;
}

}  // namespace farandole
