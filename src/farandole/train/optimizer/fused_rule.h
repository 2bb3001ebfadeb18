// Updates flat parameters as LibTorch's SGD, Adam and AdamW do, with LibTorch's fused kernels.
// Thread safety: call from the training thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace farandole {

// Parts of equal length of a bucket's parameters, gradients and state.
struct FlatRun {
  torch::Tensor parameters;
  torch::Tensor gradients;
  std::array<torch::Tensor, 3> state;
};

// Scalars of float32, on the device of the run.
struct FusedScalars {
  std::optional<torch::Tensor> scale{};      // Gradients are divided by it and stored.
  std::optional<torch::Tensor> leave_out{};  // Nothing is changed if it is 1.
};

class FusedRule {
 public:
  using Options = torch::optim::OptimizerOptions;

  virtual ~FusedRule() = default;
  // Returns the number of state tensors per parameter that the options need: 0 to 3.
  virtual std::size_t fields(const Options& options) const = 0;
  // Returns whether zeros in parameter, gradient and state stay zeros. Then padding may also be updated.
  virtual bool keeps_zeros(const Options& options) const = 0;
  // Makes `places` (one per field, with the parameter's shape) the tensors of the parameter's state. They
  // get the current values of the state, or zeros if there is none. Counts one update and returns the
  // number of earlier updates.
  virtual std::int64_t settle(const torch::Tensor& parameter, const Options& options,
                              std::span<const torch::Tensor> places) = 0;
  // Updates `run` once; all of it has been updated `earlier` times before.
  virtual void update(const FlatRun& run, const Options& options, std::int64_t earlier,
                      const FusedScalars& scalars) const = 0;
};

// Returns nullptr if the optimizer is not exactly one of the three types. `optimizer` must outlive the rule.
std::unique_ptr<FusedRule> make_fused_rule(torch::optim::Optimizer& optimizer);

}  // namespace farandole
