#include "farandole/estimator/exported/execution.h"

#include <fmt/format.h>
#include <unordered_map>

namespace farandole {
namespace {

void visit_slots(const PreparedArgument& argument, const std::function<void(std::size_t)>& visit) {
  if (argument.kind == PreparedArgument::Kind::value) visit(argument.slot);
  for (const auto& element : argument.elements) visit_slots(element, visit);
}

PreparedNode prepare(const ExportedNode& node, const SlotOf& slot_of, ExportedContext& context) {
  if (node.target.starts_with("torch.ops.higher_order.")) return prepare_block(node, slot_of, context);
  if (node.target.starts_with("torch.ops.")) return prepare_operator(node, slot_of, context);
  return prepare_arithmetic(node, slot_of, context);
}

}  // namespace

ExecutableGraph::ExecutableGraph(const ExportedGraph& graph, ExportedContext& context) {
  std::unordered_map<std::string, std::size_t> numbers;
  const auto define = [&](const ExportedArgument& argument) {
    if (std::holds_alternative<std::monostate>(argument.value)) return unused;
    const auto* const name = argument.name();
    if (name == nullptr) throw std::runtime_error(fmt::format("{} is no name of a value", argument.kind));
    if (!numbers.emplace(*name, slots_).second)
      throw std::runtime_error(fmt::format("the graph has two values {}", *name));
    return slots_++;
  };
  // A value must come before its use, so the graph has no cycles.
  const SlotOf slot_of = [&](const std::string& name) {
    const auto found = numbers.find(name);
    if (found == numbers.end())
      throw std::runtime_error(fmt::format("the graph uses {} before it is computed", name));
    return found->second;
  };
  for (const auto& input : graph.inputs) inputs_.push_back(input.name() != nullptr ? define(input) : unused);
  for (const auto& node : graph.nodes) {
    Step step{prepare(node, slot_of, context), {}, {}};
    for (const auto& output : node.outputs) {
      auto& result = step.results.emplace_back();
      if (const auto* const list = std::get_if<ExportedArgument::List>(&output.value)) {
        result.is_list = true;
        for (const auto& element : *list) result.slots.push_back(define(element));
      } else {
        result.slots.push_back(define(output));
      }
    }
    steps_.push_back(std::move(step));
  }
  for (const auto& output : graph.outputs) outputs_.push_back(prepare_argument(output, slot_of, context));

  std::vector<bool> is_used(slots_);
  for (const auto& output : outputs_) visit_slots(output, [&](std::size_t slot) { is_used[slot] = true; });
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const auto use = [&](std::size_t slot) {
      if (slot == unused || is_used[slot]) return;
      is_used[slot] = true;
      step->last_uses.push_back(slot);
    };
    for (const auto& argument : step->node.arguments) visit_slots(argument, use);
    for (const auto& result : step->results)
      for (const auto slot : result.slots) use(slot);
  }
}

void ExecutableGraph::store(const Step& step, c10::Stack& results, ExportedFrame& frame) const {
  if (results.size() < step.results.size())
    throw std::runtime_error("an operator has fewer results than the graph");
  for (std::size_t i = 0; i < step.results.size(); ++i) {
    const auto& [slots, is_list] = step.results[i];
    if (!is_list) {
      if (slots[0] != unused) frame[slots[0]] = std::move(results[i]);
      continue;
    }
    const auto elements = results[i].toListRef();
    if (elements.size() != slots.size())
      throw std::runtime_error("an operator has a list of another length than the graph");
    for (std::size_t k = 0; k < slots.size(); ++k)
      if (slots[k] != unused) frame[slots[k]] = elements[k];
  }
}

void ExecutableGraph::run(c10::Stack& stack) const {
  if (stack.size() != inputs_.size())
    throw std::runtime_error(fmt::format("the graph takes {} inputs, not {}", inputs_.size(), stack.size()));
  ExportedFrame frame(slots_);
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] != unused) frame[inputs_[i]] = std::move(stack[i]);
  stack.clear();
  for (const auto& step : steps_) {
    for (const auto& argument : step.node.arguments) stack.push_back(argument.in(frame));
    step.node.operation->run(stack);
    store(step, stack, frame);
    stack.clear();
    for (const auto slot : step.last_uses) frame[slot] = c10::IValue();
  }
  for (const auto& output : outputs_) stack.push_back(output.in(frame));
}

}  // namespace farandole
