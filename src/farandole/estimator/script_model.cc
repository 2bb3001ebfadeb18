#include "farandole/estimator/script_model.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <sstream>
#include <torch/csrc/jit/runtime/jit_exception.h>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/estimator/model_file.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// LibTorch's scripts are no torch::nn::Module, which optimizers, broadcasts and checkpoints of
// this library need. A parameter that has several names is registered under the first of them.
class ModuleView : public torch::nn::Module {
 public:
  using Names = std::map<const torch::TensorImpl*, std::string>;

  ModuleView(const torch::jit::Module& script, const std::string& prefix, Names& seen,
             ScriptModel::TiedNames& tied) {
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

std::string shapes_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<std::string> shapes;
  for (const auto& tensor : tensors)
    shapes.push_back(fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", ")));
  return fmt::format("{}", fmt::join(shapes, ", "));
}

// Whether other inputs would help, as far as the words of LibTorch tell.
bool is_about_inputs(const std::exception& error, const std::string& text) {
  if (dynamic_cast<const torch::jit::JITException*>(&error) != nullptr) return false;  // The model raised it.
  if (text.find("out of memory") != text.npos) return false;
  constexpr std::array words = {"size", "shape", "dimension", "argument", "dtype", "scalar type", "expand"};
  return std::ranges::any_of(words, [&](const char* word) { return text.find(word) != text.npos; });
}

// Writes to a temporary file and publishes it.
void publish(const fs::path& file, const std::function<void(const std::string&)>& write) {
  AtomicFile written(file);
  write(written.temporary().string());
  written.publish();
}

}  // namespace

std::string brief(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::istringstream lines(torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
  constexpr std::string_view mark = "RuntimeError: ", builtins = "builtins.";
  const auto names_an_error = [](std::string_view line) {  // "builtins.ValueError: text"
    const auto colon = line.find(": ");
    return colon != line.npos && colon > 0 && std::ranges::all_of(line.substr(0, colon), [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '.' || c == '_';
           });
  };
  std::string first;
  for (std::string line; std::getline(lines, line);) {
    if (const auto at = line.find(mark); at != line.npos) return line.substr(at + mark.size());
    if (first.empty())
      first = line;
    else if (first.find("TorchScript") != first.npos && names_an_error(line))
      return line.substr(line.starts_with(builtins) ? builtins.size() : 0);
  }
  return first;
}

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

ScriptModel::ScriptModel(const fs::path& file, torch::Device device) : file_(file.string()) {
  if (!fs::is_regular_file(file)) throw UserError(fmt::format("there is no model {}", file_));
  script_ = load_script(file_, device, "model");
  if (!script_.find_method("forward"))
    throw UserError(file_ + " has no method forward; export a whole model");
  ModuleView::Names seen;
  view_ = std::make_shared<ModuleView>(script_, "", seen, tied_);
}

std::vector<torch::Tensor> ScriptModel::forward(const std::vector<torch::Tensor>& inputs,
                                                std::size_t outputs) {
  torch::jit::IValue result;
  try {
    result = script_.forward({inputs.begin(), inputs.end()});
  } catch (const std::exception& error) {
    const auto text = brief(error);
    if (!is_about_inputs(error, text))
      throw UserError(fmt::format("{} failed on features of shape {}: {}", file_, shapes_of(inputs), text));
    throw UserError(
        fmt::format("{} does not accept features of shape {}: {}; choose other --features or --input-shapes",
                    file_, shapes_of(inputs), text));
  }
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
  if (tensors.size() != outputs)
    throw UserError(
        fmt::format("{} returns {} tensor{} for {} label{}; name a column with --label for each of them",
                    file_, tensors.size(), tensors.size() == 1 ? "" : "s", outputs, outputs == 1 ? "" : "s"));
  return tensors;
}

std::string ScriptModel::why_not_trained_on(const std::vector<torch::Tensor>& inputs) const {
  const torch::NoGradGuard no_grad;
  auto copy = script_.deepcopy();  // Buffers may change in training.
  copy.train(true);
  // Dropout must find the same random numbers as without this call.
  auto generator = at::globalContext().defaultGenerator(inputs.front().device());
  const auto state = generator.get_state();
  std::string reason;
  try {
    copy.forward({inputs.begin(), inputs.end()});
  } catch (const std::exception& error) {
    reason = brief(error);
  }
  generator.set_state(state);
  return reason;
}

std::vector<torch::Tensor> ScriptModel::trained_parameters() {
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : view_->parameters())
    if (parameter.requires_grad()) parameters.push_back(parameter);
  if (parameters.empty())
    throw UserError(
        file_ + " has no parameters to train; export a model that is not frozen, before torch.jit.freeze");
  return parameters;
}

void ScriptModel::save(const fs::path& file) {
  script_.to(torch::kCPU);
  publish(file, [&](const std::string& temporary) { script_.save(temporary); });
}

void ScriptModel::save_state(const fs::path& file) {
  publish(file, [&](const std::string& temporary) {
    auto out = Hdf5File::create(temporary);
    const auto write = [&](const std::string& name, const torch::Tensor& value) {
      const auto data = value.detach().cpu().contiguous();
      out.write_array("/" + name, dtype_of(data), data.sizes(),
                      {static_cast<const std::byte*>(data.data_ptr()), bytes_of(data)});
    };
    const auto parameters = view_->named_parameters();
    for (const auto& item : parameters) write(item.key(), item.value());
    for (const auto& [name, first] : tied_) write(name, parameters[first]);
    for (const auto& item : view_->named_buffers())
      if (item.value().defined()) write(item.key(), item.value());
    out.close();
  });
}

}  // namespace farandole
