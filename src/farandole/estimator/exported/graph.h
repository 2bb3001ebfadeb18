// The graph of an exported program, as its JSON has it.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <c10/util/complex.h>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "farandole/estimator/exported/schema.h"

namespace farandole {

struct ExportedGraph;

// A constant, the name of a value, a list of them, or a graph within the graph.
struct ExportedArgument {
  struct Name {
    std::string text;
  };
  struct Unknown {};  // A kind that this library does not run: objects of custom classes, dicts.
  using List = std::vector<ExportedArgument>;

  std::string kind;  // "as_tensor"
  std::variant<std::monostate, Name, bool, std::int64_t, double, c10::complex<double>, std::string,
               c10::ScalarType, c10::MemoryFormat, c10::Layout, c10::Device, List,
               std::shared_ptr<const ExportedGraph>, Unknown>
      value;

  const std::string* name() const {
    const auto* const name = std::get_if<Name>(&value);
    return name == nullptr ? nullptr : &name->text;
  }
};

struct ExportedNode {
  struct Input {
    std::string name;  // Of the operator's parameter; empty for higher-order operators.
    ExportedArgument value;
  };
  std::string target;  // "torch.ops.aten.linear.default"
  std::vector<Input> inputs;
  ExportedArgument::List outputs;
};

struct ExportedGraph {
  ExportedArgument::List inputs, outputs;
  std::vector<ExportedNode> nodes;
};

// Throws: Json::exception or std::runtime_error if it is no graph.
ExportedGraph parse_exported_graph(const Json& json);
ExportedArgument parse_exported_argument(const Json& json);
// The only member of a union: its kind and its value.
std::pair<const std::string&, const Json&> member_of_union(const Json& json);

}  // namespace farandole
