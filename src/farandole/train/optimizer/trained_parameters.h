// Which parameters an optimizer trains, by name. Plain values; any thread.
#pragma once

#include <string>
#include <torch/torch.h>
#include <vector>

#include "farandole/base/bucket_plan.h"

namespace farandole {

struct TrainedParameters {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;  // by the index of the name

  TrainedParameters() = default;
  // Those that require gradients. A tensor that several modules share is there once, under its first name.
  // Throws UserError where there are none.
  explicit TrainedParameters(const torch::OrderedDict<std::string, torch::Tensor>& parameters);

  // Takes those out that `wanted` names, which `optimizer` must be able to update by sparse gradients; throws
  // UserError where it is not, or for a name that is not trained.
  TrainedParameters take_sparse(const std::vector<std::string>& wanted,
                                const torch::optim::Optimizer& optimizer);
  std::vector<TensorSpec> specs() const;
};

}  // namespace farandole
