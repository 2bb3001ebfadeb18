// The place in a bucket where a parameter's gradient is to lie, for kernels that can compute it there. It
// hangs on the parameter's gradient accumulator, whose hook it is. Used by threads that run backward.
#pragma once

#include <atomic>
#include <functional>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/torch.h>

namespace farandole {

class GradientSlot final : public torch::autograd::FunctionPostHook {
 public:
  // `arrived` is called when the parameter's grad() has been set.
  GradientSlot(torch::Tensor place, std::function<void()> arrived)
      : place_(std::move(place)), arrived_(std::move(arrived)) {}

  // Null where the parameter trains in no bucket.
  static GradientSlot* of(const torch::Tensor& parameter);

  // Memory for the gradient that the running backward computes of `parameter`, for it to be returned by the
  // parameter's function: autograd then makes it grad(). Undefined where it is taken (a parameter that is
  // used twice), where gradients add up, and where the gradient may go elsewhere than into grad().
  torch::Tensor take(const torch::Tensor& parameter);
  void give_back() { taken_ = false; }

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override;

 private:
  const torch::Tensor place_;
  const std::function<void()> arrived_;
  std::atomic<bool> taken_{false};
};

}  // namespace farandole
