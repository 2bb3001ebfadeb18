// Higher-order operators: torch.cond, and the blocks of torch.no_grad, torch.enable_grad and torch.autocast.
// Thread safety: none; use from one thread at a time.
#include <ATen/autocast_mode.h>
#include <ATen/ops/alias.h>
#include <algorithm>
#include <array>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "farandole/estimator/exported/execution.h"

namespace farandole {
namespace {

constexpr const char* block_prefix = "torch.ops.higher_order.";

// Passes tensors on. Those that are not used get zeros as gradient instead of none, as in Python: an
// optimizer with momentum or weight decay then changes the parameters of the branch that was not taken, too.
class WithGradients : public torch::autograd::Function<WithGradients> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext*, at::TensorList tensors) {
    torch::autograd::variable_list result;
    for (const auto& tensor : tensors) result.push_back(at::alias(tensor));
    return result;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return gradients;
  }
};

class Conditional final : public ExportedOperation {
 public:
  Conditional(ExecutableGraph yes, ExecutableGraph no) : yes_(std::move(yes)), no_(std::move(no)) {}
  void run(c10::Stack& stack) const override {
    const auto& condition = stack.front();
    const bool is_true = condition.isTensor() ? condition.toTensor().item<bool>() : condition.toBool();
    stack.erase(stack.begin());
    std::vector<at::Tensor> tensors;
    const auto is_trained = [](const c10::IValue& value) {
      return value.isTensor() && value.toTensor().requires_grad();
    };
    for (const auto& value : stack)
      if (is_trained(value)) tensors.push_back(value.toTensor());
    if (!tensors.empty() && c10::GradMode::is_enabled()) {
      tensors = WithGradients::apply(at::TensorList(tensors));
      auto next = tensors.begin();
      for (auto& value : stack)
        if (is_trained(value)) value = *next++;
    }
    (is_true ? yes_ : no_).run(stack);
  }

 private:
  ExecutableGraph yes_, no_;
};

class GradientBlock final : public ExportedOperation {
 public:
  GradientBlock(bool enabled, ExecutableGraph graph) : enabled_(enabled), graph_(std::move(graph)) {}
  void run(c10::Stack& stack) const override {
    const c10::AutoGradMode mode(enabled_);
    graph_.run(stack);
  }

 private:
  bool enabled_;
  ExecutableGraph graph_;
};

// As torch.autocast does when its block begins and ends.
class AutocastGuard {
 public:
  AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> dtype, bool enabled,
                std::optional<bool> keeps_casts)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        dtype_before_(at::autocast::get_autocast_dtype(device)),
        kept_casts_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype.value_or(dtype_before_));
    at::autocast::increment_nesting();
    at::autocast::set_autocast_cache_enabled(keeps_casts.value_or(kept_casts_));
  }
  ~AutocastGuard() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_before_);
    at::autocast::set_autocast_cache_enabled(kept_casts_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType dtype_before_;
  bool kept_casts_;
};

class AutocastBlock final : public ExportedOperation {
 public:
  AutocastBlock(at::DeviceType device, std::optional<at::ScalarType> dtype, bool enabled,
                std::optional<bool> keeps_casts, ExecutableGraph graph)
      : device_(device),
        dtype_(dtype),
        enabled_(enabled),
        keeps_casts_(keeps_casts),
        graph_(std::move(graph)) {}
  void run(c10::Stack& stack) const override {
    const AutocastGuard guard(device_, dtype_, enabled_, keeps_casts_);
    graph_.run(stack);
  }

 private:
  at::DeviceType device_;
  std::optional<at::ScalarType> dtype_;
  bool enabled_;
  std::optional<bool> keeps_casts_;
  ExecutableGraph graph_;
};

template <class T>
std::optional<T> optional_of(const ExportedArgument& argument) {
  const auto* const value = std::get_if<T>(&argument.value);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

template <class T>
T required(const ExportedNode& node, std::size_t place) {
  if (place < node.inputs.size())
    if (const auto value = optional_of<T>(node.inputs[place].value)) return *value;
  throw std::runtime_error(fmt::format("{} lacks argument {}", node.target, place));
}

ExecutableGraph graph_of(const ExportedNode& node, std::size_t place, ExportedContext& context) {
  return {*required<std::shared_ptr<const ExportedGraph>>(node, place), context};
}

}  // namespace

PreparedNode prepare_block(const ExportedNode& node, const SlotOf& slot_of, ExportedContext& context) {
  const auto name = std::string_view(node.target).substr(std::string_view(block_prefix).size());
  PreparedNode prepared;
  const auto take = [&](const ExportedArgument& argument) {  // A list of arguments is several.
    auto taken = prepare_argument(argument, slot_of, context);
    if (taken.kind != PreparedArgument::Kind::list) return prepared.arguments.push_back(std::move(taken));
    for (auto& element : taken.elements) prepared.arguments.push_back(std::move(element));
  };
  std::size_t first = 0;  // Argument of the graph.
  if (name == "cond" && node.inputs.size() >= 3) {
    take(node.inputs[0].value);
    prepared.operation =
        std::make_unique<Conditional>(graph_of(node, 1, context), graph_of(node, 2, context));
    first = 3;
  } else if (name == "wrap_with_set_grad_enabled") {
    prepared.operation = std::make_unique<GradientBlock>(required<bool>(node, 0), graph_of(node, 1, context));
    first = 2;
  } else if (name == "wrap_with_autocast" && node.inputs.size() >= 5) {
    prepared.operation = std::make_unique<AutocastBlock>(
        context.device.type(), optional_of<c10::ScalarType>(node.inputs[1].value), required<bool>(node, 2),
        optional_of<bool>(node.inputs[3].value), graph_of(node, 4, context));
    first = 5;
  } else {
    context.missing.insert(node.target);
    return prepared;
  }
  for (auto i = first; i < node.inputs.size(); ++i) take(node.inputs[i].value);
  return prepared;
}

}  // namespace farandole
