// How LibTorch's SGD, Adam and AdamW update parameters that lie flat, by its fused kernels. Used by the
// training thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <torch/torch.h>

namespace farandole {

// Equal pieces of a bucket's parameters, gradients and state.
struct FlatRun {
  torch::Tensor parameters;
  torch::Tensor gradients;
  std::array<torch::Tensor, 3> state;
};

class FusedRule {
 public:
  using Options = torch::optim::OptimizerOptions;

  virtual ~FusedRule() = default;
  // Tensors of state that the options ask for, a parameter: 0 to 3.
  virtual std::size_t fields(const Options& options) const = 0;
  // Whether zeros of parameter, gradient and state stay zeros, so that padding may be updated as well.
  virtual bool keeps_zeros(const Options& options) const = 0;
  // Makes `places` (one a field, of the parameter's shape) the tensors of its state, with the values that the
  // state holds elsewhere; zeros where it has none. Counts one update; returns the number of those before it.
  virtual std::int64_t settle(const torch::Tensor& parameter, const Options& options,
                              std::span<const torch::Tensor> places) = 0;
  // One update of `run`, all of it updated `earlier` times before. Gradients are taken, and left, divided by
  // `scale`, a float32 scalar.
  virtual void update(const FlatRun& run, const Options& options, std::int64_t earlier,
                      const std::optional<torch::Tensor>& scale) const = 0;
};

// For an optimizer that is one of the three and nothing derived from it; else nullptr. `optimizer` outlives
// the rule.
std::unique_ptr<FusedRule> make_fused_rule(torch::optim::Optimizer& optimizer);

}  // namespace farandole
