// The place of a parameter's gradient in a bucket, for kernels that can compute the gradient there. It is a
// hook of the parameter's gradient accumulator.
// Thread safety: any thread may call this at any time. It must be a thread that runs backward.
#pragma once

#include <atomic>
#include <functional>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/types.h>

namespace farandole {

class GradientSlot final : public torch::autograd::FunctionPostHook {
 public:
  // `arrived` is called when the parameter's grad() has been set.
  GradientSlot(torch::Tensor place, std::function<void()> arrived)
      : place_(std::move(place)), arrived_(std::move(arrived)) {}

  // Returns nullptr if the parameter is not in a bucket.
  static GradientSlot* of(const torch::Tensor& parameter);

  // Returns memory for the gradient of `parameter` that the running backward computes. The
  // parameter's function must return it; autograd then makes it grad(). The result is undefined if
  // the memory is in use (a parameter that is used twice), if gradients are added up, or if the
  // gradient may not be stored in grad().
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
