// What a node of an exported graph does: it takes its arguments from a stack and leaves its results there.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <ATen/core/stack.h>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "farandole/estimator/exported/graph.h"

namespace farandole {

class ExportedOperation {
 public:
  virtual ~ExportedOperation() = default;
  virtual void run(c10::Stack& stack) const = 0;
};

// The values of a graph while it runs, by their numbers.
using ExportedFrame = std::vector<c10::IValue>;

// An argument of a node, as its operator takes it. It is known when the graph is loaded, or a value of the
// graph, or a list of such arguments.
struct PreparedArgument {
  enum class Kind { constant, value, list };
  // What the operator's parameter takes, if a value of another type needs a conversion.
  enum class Type { any, tensor, optional_tensor, integer, number, floating, boolean, text };

  Kind kind = Kind::constant;
  Type type = Type::any;  // Of a list: of its elements.
  c10::IValue constant{};
  std::size_t slot = 0;
  std::vector<PreparedArgument> elements{};

  c10::IValue in(const ExportedFrame& frame) const;
};

// What the nodes of a graph and of the graphs in it need to be prepared.
struct ExportedContext {
  at::Device device;              // Replaces the devices that are constants of the graph.
  std::set<std::string> missing;  // Operators that this library cannot run.
};

// A node with its operator and arguments. The operation is null if it is missing.
struct PreparedNode {
  std::unique_ptr<const ExportedOperation> operation;
  std::vector<PreparedArgument> arguments;
};

// Returns the number of a value of the graph. Throws: std::runtime_error if there is none of this name.
using SlotOf = std::function<std::size_t(const std::string& name)>;

// An operator of ATen. Throws: std::runtime_error if the arguments do not fit.
PreparedNode prepare_operator(const ExportedNode& node, const SlotOf& slot_of, ExportedContext& context);
// A function of Python on numbers, such as _operator.mul and torch.sym_max, for sizes.
PreparedNode prepare_arithmetic(const ExportedNode& node, const SlotOf& slot_of, ExportedContext& context);
// torch.cond, and the blocks of torch.no_grad and torch.autocast, whose graphs are arguments.
PreparedNode prepare_block(const ExportedNode& node, const SlotOf& slot_of, ExportedContext& context);
// Without a parameter of an operator: lists stay lists, and numbers stay what they are.
PreparedArgument prepare_argument(const ExportedArgument& argument, const SlotOf& slot_of,
                                  const ExportedContext& context);

}  // namespace farandole
