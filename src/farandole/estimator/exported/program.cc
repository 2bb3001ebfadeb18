#include "farandole/estimator/exported/program.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "farandole/base/error.h"
#include "farandole/base/text/json.h"

namespace farandole {
namespace {

using Names = std::map<std::string, const ExportedInput*>;
using TensorValues = std::map<std::string, const Json*, std::less<>>;

ExportedInput parse_input(const Json& spec, const TensorValues& tensors) {
  using Kind = ExportedInput::Kind;
  const auto [kind, value] = member_of_union(spec);
  const auto name = [&] { return value.at("arg").at("name").get<std::string>(); };
  const auto tensor = [&](Kind of, const char* target, bool persistent) {
    return ExportedInput{of, name(), value.at(target).get<std::string>(), persistent,
                         exported_tensor_meta(*tensors.at(name()))};
  };
  if (kind == "parameter") return tensor(Kind::parameter, "parameter_name", true);
  if (kind == "buffer") return tensor(Kind::buffer, "buffer_name", value.at("persistent").get<bool>());
  if (kind == "tensor_constant") return tensor(Kind::constant, "tensor_constant_name", false);
  if (kind == "user_input") {
    const auto argument = parse_exported_argument(value.at("arg"));
    if (argument.kind.starts_with("as_sym"))
      throw UserError(
          "forward takes a number; let it take tensors only, and a number as an attribute of the module");
    ExportedInput input{argument.kind == "as_tensor" ? Kind::user : Kind::none,
                        argument.name() == nullptr ? "" : *argument.name()};
    if (input.kind == Kind::user) input.meta = exported_tensor_meta(*tensors.at(input.name));
    return input;
  }
  if (kind == "constant_input") return {Kind::none, value.at("name").get<std::string>()};
  throw UserError(fmt::format("the program has an input of kind {}, which this library does not run", kind));
}

std::string parse_output(const Json& spec) {
  const auto [kind, value] = member_of_union(spec);
  if (kind == "user_output") return "";
  if (kind == "buffer_mutation") return value.at("buffer_name").get<std::string>();
  throw UserError(fmt::format("the program has an output of kind {}, which this library does not run", kind));
}

const ExportedArgument* input_of(const ExportedNode& node, std::string_view name) {
  const auto found = std::ranges::find(node.inputs, name, &ExportedNode::Input::name);
  return found == node.inputs.end() ? nullptr : &found->value;
}

bool is_number(const ExportedArgument* argument, double number) {
  if (argument == nullptr) return false;
  if (const auto* const real = std::get_if<double>(&argument->value)) return *real == number;
  const auto* const whole = std::get_if<std::int64_t>(&argument->value);
  return whole != nullptr && static_cast<double>(*whole) == number;
}

// Whether the argument is the program's own buffer, which an operator changes in place. The graphs of no_grad
// and the like have other names for the values that they take, so this knows only those of the whole graph.
bool changes_buffer(const ExportedNode& node, const Names& inputs) {
  const auto overload = node.target.rfind('.');
  if (overload == node.target.npos || overload == 0 || node.target[overload - 1] != '_' ||
      node.inputs.empty())
    return false;
  const auto* const name = node.inputs.front().value.name();
  const auto found = name == nullptr ? inputs.end() : inputs.find(*name);
  return found != inputs.end() && found->second->kind == ExportedInput::Kind::buffer;
}

// Dropout, batch normalization and recurrent layers have an argument that says whether they train. Without
// dropout, or without running statistics, they do the same in both modes.
void find_mode(const ExportedGraph& graph, const Names& inputs, ExportedProgram& program) {
  for (const auto& node : graph.nodes) {
    const ExportedArgument* trains = nullptr;
    for (const auto* const name : {"train", "training", "use_input_stats"})
      if (const auto* const argument = input_of(node, name)) trains = argument;
    const auto* const drops =
        input_of(node, "dropout") != nullptr ? input_of(node, "dropout") : input_of(node, "p");
    const auto* const mean = input_of(node, "running_mean");
    const bool is_trained =
        trains != nullptr && std::holds_alternative<bool>(trains->value) && std::get<bool>(trains->value);
    const bool is_neutral =
        trains == nullptr || is_number(drops, 0) || (mean != nullptr && mean->name() == nullptr);
    const auto* const attention = input_of(node, "dropout_p");
    const bool drops_attention = attention != nullptr && !is_number(attention, 0);
    const bool is_layer = !is_neutral || drops_attention;
    const bool is_change = !is_layer && changes_buffer(node, inputs);
    if (is_layer || is_change) {
      ++(is_change                  ? program.changed_buffers
         : is_trained || is_neutral ? program.training_operators
                                    : program.evaluation_operators);
      const auto name = node.target.substr(std::string_view("torch.ops.").size());
      if (is_layer || program.mode_operator.empty()) program.mode_operator = name.substr(0, name.rfind('.'));
    }
    for (const auto& input : node.inputs)
      if (const auto* const inner = std::get_if<std::shared_ptr<const ExportedGraph>>(&input.value.value))
        find_mode(**inner, inputs, program);
  }
}

// The range of a size, as conditions like those of torch.export. A batch of one row is let through,
// as in Python.
std::vector<std::string> ranges_of(const Json& program, const ExportedInput& input, const Json& sizes) {
  std::vector<std::string> conditions;
  constexpr std::string_view begin = "Symbol('";
  const auto ranges = program.value("range_constraints", Json::object());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].contains("as_expr")) continue;
    const auto text = sizes[i].at("as_expr").at("expr_str").get<std::string>();
    if (!text.starts_with(begin) || text.find(')') != text.size() - 1) continue;  // Such as 2*Symbol('s77').
    const auto symbol = text.substr(begin.size(), text.find('\'', begin.size()) - begin.size());
    if (!ranges.contains(symbol)) continue;
    const auto add = [&](const char* bound, const char* comparison, std::int64_t least) {
      const auto limit = ranges.at(symbol).value(bound, Json());
      if (limit.is_number_integer() && exported_integer(limit) >= least)
        conditions.push_back(
            fmt::format("L['{}'].size()[{}] {} {}", input.name, i, comparison, exported_integer(limit)));
    };
    add("min_val", ">=", 3);  // torch.export writes 2 for any size.
    add("max_val", "<=", 0);
  }
  return conditions;
}

// Adds the names of the leaves of what forward returns, from PyTorch's description of it: keys of
// dictionaries, and numbers in tuples.
void add_names(const Json& spec, const std::string& name, std::vector<std::string>& names) {
  const auto& children = spec.at("children_spec");
  if (spec.at("type").is_null() || children.empty()) {
    if (spec.at("type").is_null()) names.push_back(name);
    return;
  }
  auto keys = spec.at("context");
  if (keys.is_string()) keys = try_parse_json(keys.get<std::string>());
  const bool is_named = keys.is_array() && keys.size() == children.size();
  for (std::size_t i = 0; i < children.size(); ++i)
    add_names(children[i],
              (name.empty() ? "" : name + ".") +
                  (is_named && keys[i].is_string() ? keys[i].get<std::string>() : std::to_string(i)),
              names);
}

// Without what cannot be read, because the names are for messages only.
std::vector<std::string> names_of_outputs(const Json& module) {
  std::vector<std::string> names;
  try {
    const auto& signature = module.at("module_call_graph").at(0).at("signature");
    add_names(parse_json(signature.at("out_spec").get<std::string>()).at(1), "", names);
  } catch (const Json::exception&) {
    names.clear();
  }
  return names;
}

}  // namespace

std::vector<const ExportedInput*> ExportedProgram::user_inputs() const {
  std::vector<const ExportedInput*> users;
  for (const auto& input : inputs)
    if (input.kind == ExportedInput::Kind::user) users.push_back(&input);
  return users;
}

ExportedProgram parse_exported_program(const std::string& name, std::string document) {
  constexpr std::int64_t schema = 8;
  const auto json = parse_sorted_json(document);
  if (const auto major = exported_integer(json.at("schema_version").at("major")); major != schema)
    throw UserError(
        fmt::format("the program has version {} of torch.export's schema, and this library reads version {}; "
                    "export it with PyTorch 2.11",
                    major, schema));
  ExportedProgram program;
  program.name = name;
  program.torch_version = json.value("torch_version", "");
  const auto& module = json.at("graph_module");
  const auto& graph = module.at("graph");
  program.graph = parse_exported_graph(graph);
  TensorValues tensors;
  for (const auto& [value, meta] : graph.at("tensor_values").items()) tensors.emplace(value, &meta);
  for (const auto& spec : module.at("signature").at("input_specs"))
    program.inputs.push_back(parse_input(spec, tensors));
  for (const auto& spec : module.at("signature").at("output_specs"))
    program.buffers_of_outputs.push_back(parse_output(spec));
  if (program.inputs.size() != program.graph.inputs.size() ||
      program.buffers_of_outputs.size() != program.graph.outputs.size())
    throw std::runtime_error("the signature has other inputs or outputs than the graph");
  const auto names = names_of_outputs(module);
  const auto users = static_cast<std::size_t>(std::ranges::count(program.buffers_of_outputs, ""));
  for (std::size_t i = 0, next = 0; i < program.buffers_of_outputs.size(); ++i) {
    const auto& [kind, value] = program.graph.outputs[i];
    if (!program.buffers_of_outputs[i].empty()) continue;
    const auto number = next++;  // Among the user's outputs.
    if (kind == "as_none") continue;
    if (kind != "as_tensor")
      throw UserError(
          "forward returns something else beside tensors, such as a number; let it return torch.as_tensor(...) of it");
    const auto& output = std::get<ExportedArgument::Name>(value).text;
    const auto meta = tensors.find(output);
    program.outputs.push_back(meta != tensors.end() ? exported_tensor_meta(*meta->second)
                                                    : ExportedTensorMeta());
    if (names.size() == users) program.output_names.push_back(names[number]);
  }
  program.guards = json.value("guards_code", std::vector<std::string>());
  for (const auto* const input : program.user_inputs())
    std::ranges::copy(ranges_of(json, *input, tensors.at(input->name)->at("sizes")),
                      std::back_inserter(program.guards));
  Names inputs;
  for (const auto& input : program.inputs) inputs[input.name] = &input;
  find_mode(program.graph, inputs, program);
  program.document = std::move(document);
  return program;
}

}  // namespace farandole
