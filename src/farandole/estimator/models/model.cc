#include "farandole/estimator/models/model.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>
#include <torch/csrc/jit/runtime/jit_exception.h>
#include <torch/utils.h>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/estimator/models/exported_model.h"
#include "farandole/estimator/models/model_file.h"
#include "farandole/estimator/models/script_model.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

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

ModelProgram::ModelProgram(const fs::path& file) : file_(file.string()) {
  if (!fs::is_regular_file(file)) throw UserError(fmt::format("there is no model {}", file_));
}

std::vector<torch::Tensor> ModelProgram::forward(const std::vector<torch::Tensor>& inputs,
                                                 std::size_t outputs) {
  std::vector<torch::Tensor> tensors;
  try {
    tensors = run(inputs);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const auto text = brief(error);
    if (!is_about_inputs(error, text))
      throw UserError(fmt::format("{} failed on features of shape {}: {}", file_, shapes_of(inputs), text));
    throw UserError(
        fmt::format("{} does not accept features of shape {}: {}; choose other --features or --input-shapes",
                    file_, shapes_of(inputs), text));
  }
  if (tensors.size() != outputs) throw UserError(wrong_outputs(tensors, outputs));
  return tensors;
}

std::string ModelProgram::wrong_outputs(const std::vector<torch::Tensor>& tensors, std::size_t labels) const {
  const auto names = output_names();
  const bool is_named = names.size() == tensors.size() && tensors.size() > 1;
  auto text = fmt::format(
      "{} returns {} tensor{}{} for {} label{}; ", file_, tensors.size(), tensors.size() == 1 ? "" : "s",
      is_named ? fmt::format(" ({})", fmt::join(names, ", ")) : "", labels, labels == 1 ? "" : "s");
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].dim() == 0)
      return text +
             fmt::format(
                 "{} is a single number, so the model computes its loss itself; leave the labels out of "
                 "its inputs, and export one that returns only what --loss compares with the label",
                 is_named ? names[i] : "one of them");
  text += "name a column with --label for each of them";
  if (tensors.size() < labels) return text;
  return text +
         ", or export a model that returns only what --loss compares with the label (--label y,y --loss-weights 1,0 "
         "trains the first of two outputs)";
}

std::string ModelProgram::why_not_trained_on(const std::vector<torch::Tensor>& inputs) {
  const torch::NoGradGuard no_grad;
  // Dropout must find the same random numbers as without this call.
  auto generator = at::globalContext().defaultGenerator(inputs.front().device());
  const auto state = generator.get_state();
  std::string reason;
  try {
    try_training(inputs);
  } catch (const std::exception& error) {
    reason = brief(error);
  }
  generator.set_state(state);
  return reason;
}

std::vector<torch::Tensor> ModelProgram::trained_parameters() {
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : view_->parameters())
    if (parameter.requires_grad()) parameters.push_back(parameter);
  if (parameters.empty())
    throw UserError(
        file_ + " has no parameters to train; export a model that is not frozen, before torch.jit.freeze");
  return parameters;
}

void ModelProgram::save(const fs::path& file) {
  AtomicFile written(file);
  write(written.temporary().string());
  written.publish();
}

void ModelProgram::save_state(const fs::path& file) {
  AtomicFile written(file);
  auto out = Hdf5File::create(written.temporary().string());
  const auto add = [&](const std::string& name, const torch::Tensor& value) {
    const auto data = value.detach().cpu().contiguous();
    out.write_array("/" + name, dtype_of(data), data.sizes(),
                    {static_cast<const std::byte*>(data.data_ptr()), bytes_of(data)});
  };
  const auto parameters = view_->named_parameters(), buffers = view_->named_buffers();
  for (const auto& item : parameters) add(item.key(), item.value());
  for (const auto& item : buffers)
    if (item.value().defined()) add(item.key(), item.value());
  for (const auto& [name, first] : tied_)
    add(name, parameters.contains(first) ? parameters[first] : buffers[first]);
  out.close();
  written.publish();
}

std::unique_ptr<ModelProgram> load_model(const fs::path& file, const fs::path& evaluation_file,
                                         torch::Device device) {
  if (is_exported_archive(file)) return std::make_unique<ExportedModel>(file, evaluation_file, device);
  if (!evaluation_file.empty() && fs::exists(file))
    throw UserError(fmt::format("--eval-model is for models of torch.export, and {} is none; leave it out",
                                file.string()));
  return std::make_unique<ScriptModel>(file, device);
}

fs::path published_model(const fs::path& folder) {
  const auto exported = folder / ExportedModel::file_name;
  return fs::exists(exported) ? exported : folder / ScriptModel::file_name;
}

std::unique_ptr<ModelProgram> load_published_model(const fs::path& folder, torch::Device device) {
  return load_model(published_model(folder), {}, device);
}

LabelFunction load_function(const fs::path& file, torch::Device device) {
  return is_exported_archive(file) ? load_exported_function(file, device)
                                   : load_script_function(file, device);
}

}  // namespace farandole
