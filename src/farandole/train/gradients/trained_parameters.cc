#include "farandole/train/gradients/trained_parameters.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <torch/nn/modules/embedding.h>
#include <torch/optim.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/tensor_bytes.h"

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

UntrainedParameters::UntrainedParameters(torch::optim::Optimizer& optimizer, const NamedParameters& named,
                                         const TrainedParameters& dense, const TrainedParameters& sparse)
    : optimizer_(optimizer), named_(named) {
  for (const auto* parameters : {&dense, &sparse})
    for (const auto& tensor : parameters->tensors) trained_.insert(tensor.unsafeGetTensorImpl());
  find();
  std::set<const void*> in_groups;
  for (const auto& group : optimizer_.param_groups())
    for (const auto& parameter : group.params()) in_groups.insert(parameter.unsafeGetTensorImpl());
  for (const auto* parameters : {&dense, &sparse})
    for (std::size_t i = 0; i < parameters->names.size(); ++i)
      if (!in_groups.contains(parameters->tensors[i].unsafeGetTensorImpl()))
        throw UserError(fmt::format(
            "DistributedOptimizer: the parameter {} requires a gradient, but the optimizer does not have it and would "
            "never change it; give the optimizer all parameters, pass only the named parameters that it has, or call "
            "requires_grad_(false)",
            parameters->names[i]));
  for (const auto& parameter : untrained_)
    if (parameter.requires_grad())
      throw UserError(fmt::format(
          "DistributedOptimizer: the optimizer has {}, which is not among the named parameters, so it would become "
          "different on each rank; pass the named parameters of the whole model, or give it an optimizer of its own",
          name_of(parameter)));
}

void UntrainedParameters::find() {
  untrained_.clear();
  in_groups_ = 0;
  for (const auto& group : optimizer_.param_groups()) {
    in_groups_ += group.params().size();
    for (const auto& parameter : group.params())
      if (!trained_.contains(parameter.unsafeGetTensorImpl())) untrained_.push_back(parameter);
  }
}

void UntrainedParameters::refuse_gradients() {
  std::size_t in_groups = 0;
  for (const auto& group : optimizer_.param_groups()) in_groups += group.params().size();
  if (in_groups != in_groups_) find();
  for (const auto& parameter : untrained_)
    if (parameter.grad().defined())
      throw UserError(fmt::format(
          "{} has a gradient, which DistributedOptimizer does not reduce, because the parameter was frozen or not in "
          "the optimizer before; make a new DistributedOptimizer after such a change",
          name_of(parameter)));
}

std::string UntrainedParameters::name_of(const torch::Tensor& parameter) const {
  for (const auto& item : named_)
    if (item.value().is_same(parameter)) return "the parameter " + item.key();
  return fmt::format("a parameter of shape [{}]", fmt::join(parameter.sizes(), ", "));
}

}  // namespace farandole
