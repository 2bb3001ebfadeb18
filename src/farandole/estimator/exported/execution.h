// A graph of an exported program, ready to run: its values have numbers, and its nodes their operators.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <vector>

#include "farandole/estimator/exported/operation.h"

namespace farandole {

class ExecutableGraph {
 public:
  // Throws: std::runtime_error if the graph is wrong. Operators that are missing are collected in `context`.
  ExecutableGraph(const ExportedGraph& graph, ExportedContext& context);

  // Takes the inputs from the stack and leaves the outputs there. Throws as the operators.
  void run(c10::Stack& stack) const;
  std::size_t inputs() const { return inputs_.size(); }

 private:
  static constexpr std::size_t unused = ~std::size_t{0};
  // Where the result of a node goes: into a value, or, for a list of tensors, into several.
  struct Result {
    std::vector<std::size_t> slots;
    bool is_list = false;
  };
  struct Step {
    PreparedNode node;
    std::vector<Result> results;
    std::vector<std::size_t> last_uses;  // Values that no later step needs.
  };
  void store(const Step& step, c10::Stack& results, ExportedFrame& frame) const;

  std::size_t slots_ = 0;
  std::vector<std::size_t> inputs_;
  std::vector<Step> steps_;
  std::vector<PreparedArgument> outputs_;
};

}  // namespace farandole
