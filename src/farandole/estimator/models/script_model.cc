#include "farandole/estimator/models/script_model.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <torch/csrc/jit/ir/constants.h>

#include "farandole/base/error.h"
#include "farandole/estimator/models/model_file.h"

namespace farandole {
namespace {

// LibTorch's scripts are no torch::nn::Module, which optimizers, broadcasts and checkpoints of
// this library need. A parameter that has several names is registered under the first of them.
class ModuleView : public torch::nn::Module {
 public:
  using Names = std::map<const torch::TensorImpl*, std::string>;

  ModuleView(const torch::jit::Module& script, const std::string& prefix, Names& seen,
             ModelProgram::TiedNames& tied) {
    for (const auto& parameter : script.named_parameters(/*recurse=*/false)) {
      const auto [first, is_new] =
          seen.emplace(parameter.value.unsafeGetTensorImpl(), prefix + parameter.name);
      if (is_new)
        register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
      else
        tied.emplace_back(prefix + parameter.name, first->second);
    }
    for (const auto& buffer : script.named_buffers(/*recurse=*/false))
      register_buffer(buffer.name, buffer.value);
    for (const auto& child : script.named_children())
      register_module(child.name,
                      std::make_shared<ModuleView>(child.value, prefix + child.name + ".", seen, tied));
  }
};

// `what` is exported: a model or a function, for messages.
torch::jit::Module load_script(const std::string& file, torch::Device device, const char* what) {
  try {
    return torch::jit::load(file, device);
  } catch (const c10::Error& error) {
    refuse_other_models(file, what);
    throw CorruptInput(
        fmt::format("{} cannot be loaded as TorchScript ({}); export it with torch.jit.script({}).save(FILE)",
                    file, brief(error), what));
  }
}

// A trace in training mode keeps dropout and the statistics of each batch also in evaluation: that they train
// is a constant of the layer. In a script, it is an attribute of the module. Returns the name of such an
// operator, or "".
std::string always_training(torch::jit::Block* block) {
  constexpr std::array dropouts = {"aten::dropout", "aten::dropout_", "aten::feature_dropout",
                                   "aten::alpha_dropout", "aten::feature_alpha_dropout"};
  for (auto* const node : block->nodes()) {
    const std::string kind = node->kind().toQualString();
    const bool drops = std::ranges::find(dropouts, kind) != dropouts.end();
    const bool normalizes = kind == "aten::batch_norm" &&
                            node->namedInput("running_mean")->type()->kind() != c10::TypeKind::NoneType;
    if ((drops || normalizes) &&
        torch::jit::constant_as<bool>(node->namedInput(drops ? "train" : "training")).value_or(false))
      return kind.substr(kind.find("::") + 2);
    for (auto* const inner : node->blocks())
      if (const auto found = always_training(inner); !found.empty()) return found;
  }
  return "";
}

}  // namespace

ScriptModel::ScriptModel(const std::filesystem::path& file, torch::Device device) : ModelProgram(file) {
  script_ = load_script(file_, device, "model");
  if (!script_.find_method("forward"))
    throw UserError(file_ + " has no method forward; export a whole model");
  for (const auto& module : script_.modules())
    if (const auto forward = module.find_method("forward"))
      if (const auto name = always_training(forward->graph()->block()); !name.empty())
        throw UserError(fmt::format(
            "{} was traced in training mode, so its {} would train in evaluation, too; save both modes with "
            "torch.export, or torch.jit.script(model).save(FILE)",
            file_, name));
  ModuleView::Names seen;
  view_ = std::make_shared<ModuleView>(script_, "", seen, tied_);
}

std::vector<torch::Tensor> ScriptModel::run(const std::vector<torch::Tensor>& inputs) {
  const auto result = script_.forward({inputs.begin(), inputs.end()});
  std::vector<torch::Tensor> tensors;
  if (result.isTensor()) {
    tensors = {result.toTensor()};
  } else if (result.isTensorList()) {
    tensors = result.toTensorVector();
  } else if (result.isTuple()) {
    for (const auto& element : result.toTupleRef().elements())
      if (element.isTensor()) tensors.push_back(element.toTensor());
    if (tensors.size() != result.toTupleRef().elements().size()) tensors.clear();
  }
  if (tensors.empty())
    throw UserError(fmt::format("{} returns a {}; its forward must return a tensor or a tuple of tensors",
                                file_, result.tagKind()));
  return tensors;
}

void ScriptModel::try_training(const std::vector<torch::Tensor>& inputs) {
  auto copy = script_.deepcopy();  // Buffers may change in training.
  copy.train(true);
  copy.forward({inputs.begin(), inputs.end()});
}

void ScriptModel::write(const std::string& file) {
  script_.to(torch::kCPU);
  script_.save(file);
}

LabelFunction load_script_function(const std::filesystem::path& file, torch::Device device) {
  const auto script = std::make_shared<torch::jit::Module>(load_script(file.string(), device, "function"));
  return [script, name = file.string()](const torch::Tensor& output, const torch::Tensor& label) {
    const auto result = script->forward({output, label});
    if (!result.isTensor())
      throw UserError(fmt::format("{} returns a {}, not a tensor", name, result.tagKind()));
    return result.toTensor();
  };
}

}  // namespace farandole
