#include "farandole/estimator/exported/graph.h"

#include <fmt/format.h>
#include <functional>

namespace farandole {
namespace {

using Value = decltype(ExportedArgument::value);

Value named(const Json& json) {
  return ExportedArgument::Name{json.at("name").get<std::string>()};
}

// A symbolic number: the name of a value, or a number.
Value symbol(const Json& json) {
  const auto [kind, value] = member_of_union(json);
  if (kind == "as_name") return ExportedArgument::Name{value.get<std::string>()};
  if (kind == "as_int") return exported_integer(value);
  if (kind == "as_float") return exported_number(value);
  return value.get<bool>();
}

Value optional_tensor(const Json& json) {
  const auto [kind, value] = member_of_union(json);
  if (kind == "as_none") return std::monostate();
  return named(value);
}

Value list_of(const Json& json, const std::function<Value(const Json&)>& element) {
  if (!json.is_array()) throw std::runtime_error("a list of arguments is none");
  ExportedArgument::List list;
  list.reserve(json.size());
  for (const auto& item : json) list.push_back({"", element(item)});
  return list;
}

Value value_of(const std::string& kind, const Json& json) {
  const auto boolean = [](const Json& value) -> Value { return value.get<bool>(); };
  const auto integer = [](const Json& value) -> Value { return exported_integer(value); };
  const auto number = [](const Json& value) -> Value { return exported_number(value); };
  const auto text = [](const Json& value) -> Value { return value.get<std::string>(); };
  if (kind == "as_none") return std::monostate();
  if (kind == "as_tensor") return named(json);
  if (kind == "as_tensors") return list_of(json, named);
  if (kind == "as_optional_tensor") return optional_tensor(json);
  if (kind == "as_optional_tensors") return list_of(json, optional_tensor);
  if (kind == "as_nested_tensors")
    return list_of(json, [](const Json& inner) { return list_of(inner, named); });
  if (kind == "as_int") return integer(json);
  if (kind == "as_ints") return list_of(json, integer);
  if (kind == "as_int_lists")
    return list_of(json, [&](const Json& inner) { return list_of(inner, integer); });
  if (kind == "as_float") return number(json);
  if (kind == "as_floats") return list_of(json, number);
  if (kind == "as_bool") return boolean(json);
  if (kind == "as_bools") return list_of(json, boolean);
  if (kind == "as_string") return text(json);
  if (kind == "as_strings") return list_of(json, text);
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") return symbol(json);
  if (kind == "as_sym_ints" || kind == "as_sym_floats" || kind == "as_sym_bools")
    return list_of(json, symbol);
  if (kind == "as_complex")
    return c10::complex<double>(exported_number(json.at("real")), exported_number(json.at("imag")));
  if (kind == "as_scalar_type") return exported_dtype(json);
  if (kind == "as_memory_format") return exported_memory_format(json);
  if (kind == "as_layout") return exported_layout(json);
  if (kind == "as_device") return exported_device(json);
  if (kind == "as_graph")
    return std::make_shared<const ExportedGraph>(parse_exported_graph(json.at("graph")));
  return ExportedArgument::Unknown();
}

ExportedArgument::List arguments_of(const Json& json) {
  ExportedArgument::List list;
  list.reserve(json.size());
  for (const auto& argument : json) list.push_back(parse_exported_argument(argument));
  return list;
}

}  // namespace

std::pair<const std::string&, const Json&> member_of_union(const Json& json) {
  if (!json.is_object() || json.size() != 1)
    throw std::runtime_error(fmt::format("{} is no union with one member", json_text(json).substr(0, 80)));
  const auto member = json.begin();
  return {member.key(), member.value()};
}

ExportedArgument parse_exported_argument(const Json& json) {
  const auto [kind, value] = member_of_union(json);
  return {kind, value_of(kind, value)};
}

ExportedGraph parse_exported_graph(const Json& json) {
  ExportedGraph graph{arguments_of(json.at("inputs")), arguments_of(json.at("outputs")), {}};
  const auto& nodes = json.at("nodes");
  graph.nodes.reserve(nodes.size());
  for (const auto& from : nodes) {
    ExportedNode node{from.at("target").get<std::string>(), {}, arguments_of(from.at("outputs"))};
    for (const auto& input : from.at("inputs"))
      node.inputs.push_back({input.at("name").get<std::string>(), parse_exported_argument(input.at("arg"))});
    graph.nodes.push_back(std::move(node));
  }
  return graph;
}

}  // namespace farandole
