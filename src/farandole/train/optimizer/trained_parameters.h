// The parameters that an optimizer trains, by name. Plain values.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <string>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>
#include <vector>

#include "farandole/base/bucket_plan.h"

namespace farandole {

struct TrainedParameters {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;  // Indexed as the names.

  TrainedParameters() = default;
  // Selects the parameters that require gradients. A tensor that several modules share occurs once,
  // under its first name.
  // Throws: UserError if there are none.
  explicit TrainedParameters(const torch::OrderedDict<std::string, torch::Tensor>& parameters);

  // Removes and returns the parameters named in `wanted`.
  // Throws: UserError if `optimizer` does not support sparse gradients, or if a named
  // parameter is not trained.
  TrainedParameters take_sparse(const std::vector<std::string>& wanted,
                                const torch::optim::Optimizer& optimizer);
  std::vector<TensorSpec> specs() const;
};

}  // namespace farandole
