#include "farandole/train/optimizer/gradient_slot.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/utils.h>

namespace farandole {

GradientSlot* GradientSlot::of(const torch::Tensor& parameter) {
  if (!parameter.defined() || !parameter.requires_grad() || !parameter.is_leaf()) return nullptr;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (accumulator == nullptr) return nullptr;
  for (const auto& hook : accumulator->post_hooks())
    if (auto* slot = dynamic_cast<GradientSlot*>(hook.get())) return slot;
  return nullptr;
}

torch::Tensor GradientSlot::take(const torch::Tensor& parameter) {
  // torch::autograd::grad() lists the gradients that it needs and returns them to its caller.
  const auto* named = torch::autograd::get_current_graph_task_exec_info();
  if (torch::GradMode::is_enabled() || parameter.grad().defined() || (named != nullptr && !named->empty()))
    return {};
  if (taken_.exchange(true)) return {};
  return place_.detach();  // Autograd takes over memory that has no other reference.
}

torch::autograd::variable_list GradientSlot::operator()(const torch::autograd::variable_list& outputs,
                                                        const torch::autograd::variable_list&) {
  give_back();
  arrived_();
  return outputs;
}

}  // namespace farandole
