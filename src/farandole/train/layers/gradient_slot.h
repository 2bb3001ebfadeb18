// The place of a parameter's gradient in a bucket, for kernels that can compute the gradient there. It is a
// hook of the parameter's gradient accumulator.
// Thread safety: any thread may call this at any time. It must be a thread that runs backward.
#pragma once

#include <c10/core/Stream.h>
#include <functional>
#include <mutex>
#include <optional>
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

  // Memory for a gradient that a function computes. If another use of the parameter has its gradient there
  // already, the function must add its own and return none. Otherwise it must return the memory, which
  // autograd then makes grad().
  struct Place {
    torch::Tensor memory;
    bool add = false;
  };
  // For the gradient of `parameter` that the running backward computes. The memory is undefined if autograd
  // adds gradients up elsewhere, or if the gradient may not be stored in grad().
  Place take(const torch::Tensor& parameter);
  void give_back();

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override;

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  // The use that returned the memory.
  struct Use {
    int backward;  // its number in LibTorch; -1: no other use may add to the memory
    c10::Stream stream;
    WeakTensor returned;
  };

  const torch::Tensor place_;
  const std::function<void()> arrived_;
  std::mutex mutex_;
  std::optional<Use> first_;  // of this backward; no value: the memory is free
};

}  // namespace farandole
