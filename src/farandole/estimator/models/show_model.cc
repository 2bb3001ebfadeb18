#include "farandole/estimator/models/show_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/script.h>

#include "farandole/base/error.h"
#include "farandole/estimator/exported/archive.h"
#include "farandole/estimator/exported/execution.h"
#include "farandole/estimator/exported/program.h"
#include "farandole/estimator/models/exported_model.h"
#include "farandole/estimator/models/model_file.h"
#include "farandole/estimator/models/script_model.h"

namespace farandole {
namespace {

using Counts = std::map<std::string, int>;

std::string line(const std::string& name, const std::string& text) {
  return fmt::format("{:<11} {}\n", name, text);
}

std::string text_of_counts(const Counts& counts) {
  std::vector<std::string> words;
  for (const auto& [name, count] : counts)
    words.push_back(count == 1 ? name : fmt::format("{} {}", name, count));
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

void count_operators(const ExportedGraph& graph, Counts& counts) {
  constexpr std::string_view prefix = "torch.ops.";
  for (const auto& node : graph.nodes) {
    ++counts[node.target.substr(node.target.starts_with(prefix) ? prefix.size() : 0)];
    for (const auto& input : node.inputs)
      if (const auto* const inner = std::get_if<std::shared_ptr<const ExportedGraph>>(&input.value.value))
        count_operators(**inner, counts);
  }
}

void count_operators(torch::jit::Block* block, Counts& counts) {
  for (auto* const node : block->nodes()) {
    if (const auto kind = std::string(node->kind().toQualString()); kind.starts_with("aten::"))
      ++counts["aten." + kind.substr(6)];
    for (auto* const inner : node->blocks()) count_operators(inner, counts);
  }
}

std::string text_of_tensors(const torch::nn::Module& module) {
  std::int64_t numbers = 0, trained = 0;
  for (const auto& parameter : module.parameters()) {
    numbers += parameter.numel();
    if (parameter.requires_grad()) trained += parameter.numel();
  }
  return line("parameters", fmt::format("{} numbers in {} tensors, {} of them are trained", numbers,
                                        module.parameters().size(), trained)) +
         line("buffers", std::to_string(module.buffers().size()));
}

std::string text_of_program(const ExportedProgram& program) {
  std::vector<std::string> inputs, outputs;
  for (const auto* const input : program.user_inputs())
    inputs.push_back(fmt::format("{} {}", input->name, describe(*input->meta)));
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    const auto name = i < program.output_names.size() ? program.output_names[i] : "";
    outputs.push_back((name.empty() ? "" : name + " ") + describe(program.outputs[i]));
  }
  Counts counts;
  count_operators(program.graph, counts);
  ExportedContext context{at::kCPU, {}};
  const ExecutableGraph graph(program.graph, context);
  const auto* const mode = program.trains()                   ? "for training"
                           : program.evaluation_operators > 0 ? "for evaluation"
                                                              : "for training and evaluation";
  return line("program", fmt::format("{}, {}, by PyTorch {}", program.name, mode, program.torch_version)) +
         line("inputs", fmt::format("{}", fmt::join(inputs, ", "))) +
         line("outputs", fmt::format("{}", fmt::join(outputs, ", "))) +
         line("operators", text_of_counts(counts)) +
         line("missing",
              context.missing.empty() ? "none" : fmt::format("{}", fmt::join(context.missing, ", ")));
}

std::string show_exported(const std::string& file, const std::string& evaluation_file) {
  std::string text, command = "farandole fit --model " + file;
  const auto show = [&](const std::string& name) {
    text += line("model", fmt::format("{}, of torch.export", name));
    visit_exported_programs(name, [&](const ExportedProgram& program) { text += text_of_program(program); });
  };
  show(file);
  if (!evaluation_file.empty()) {
    show(evaluation_file);
    command += " --eval-model " + evaluation_file;
  }
  try {
    ExportedModel model(file, evaluation_file, at::kCPU);
    text += text_of_tensors(model.module()) + line("trained by", command);
  } catch (const UserError& error) {
    text += line("not trained", error.what());
  }
  return text;
}

std::string show_script(const std::string& file) {
  ScriptModel model(file);
  const auto method = model.script().get_method("forward");
  const auto graph = method.graph()->copy();
  torch::jit::Inline(*graph);
  Counts counts;
  count_operators(graph->block(), counts);
  std::vector<std::string> inputs;
  for (const auto& argument : method.function().getSchema().arguments())
    if (argument.name() != "self")
      inputs.push_back(fmt::format("{} {}", argument.name(), argument.type()->str()));
  return line("model", file + ", in TorchScript") +
         line("inputs", fmt::format("{}", fmt::join(inputs, ", "))) +
         line("operators", text_of_counts(counts)) + text_of_tensors(model.module()) +
         line("trained by", "farandole fit --model " + file);
}

}  // namespace

std::string show_model(const std::string& file, const std::string& evaluation_file) {
  return is_exported_archive(file) ? show_exported(file, evaluation_file) : show_script(file);
}

}  // namespace farandole
