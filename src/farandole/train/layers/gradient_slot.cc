#include "farandole/train/layers/gradient_slot.h"

#include <c10/core/impl/VirtualGuardImpl.h>
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

// Autograd keeps the gradient of the first use until it has those of all uses. As long as it has the only
// reference to that tensor, it has not added anything to it in other memory.
GradientSlot::Place GradientSlot::take(const torch::Tensor& parameter) {
  // torch::autograd::grad() lists the gradients that it needs and returns them to its caller.
  const auto* named = torch::autograd::get_current_graph_task_exec_info();
  if (torch::GradMode::is_enabled() || parameter.grad().defined() || (named != nullptr && !named->empty()))
    return {};
  const auto backward = torch::autograd::get_current_graph_task_id();
  const auto stream = c10::impl::VirtualGuardImpl(place_.device().type()).getStream(place_.device());
  auto memory = place_.detach();
  const std::lock_guard lock(mutex_);
  if (first_) {
    const bool is_there =
        first_->backward == backward && first_->stream == stream && first_->returned.use_count() == 1;
    return is_there ? Place{memory, true} : Place();
  }
  // Hooks of the function that is running may keep what it returns.
  const auto function = torch::autograd::get_current_node();
  const bool is_kept = function == nullptr || !function->post_hooks().empty();
  first_.emplace(Use{is_kept ? -1 : backward, stream, WeakTensor(memory.getIntrusivePtr())});
  return {std::move(memory)};  // Autograd takes over memory that has no other reference.
}

void GradientSlot::give_back() {
  const std::lock_guard lock(mutex_);
  first_.reset();
}

torch::autograd::variable_list GradientSlot::operator()(const torch::autograd::variable_list& outputs,
                                                        const torch::autograd::variable_list&) {
  give_back();
  arrived_();
  return outputs;
}

}  // namespace farandole
