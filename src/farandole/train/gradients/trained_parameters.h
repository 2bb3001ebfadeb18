// The parameters that an optimizer trains, by name. Plain values.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <set>
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

// The parameters of an optimizer whose gradients are not reduced, because they were frozen when the
// DistributedOptimizer was made, or because they are not among its named parameters. With a gradient, they
// would become different on each rank.
class UntrainedParameters {
 public:
  using NamedParameters = torch::OrderedDict<std::string, torch::Tensor>;

  // `optimizer` must outlive this object.
  // Throws: UserError if such a parameter requires a gradient, or if a trained one is not in the optimizer.
  UntrainedParameters(torch::optim::Optimizer& optimizer, const NamedParameters& named,
                      const TrainedParameters& dense, const TrainedParameters& sparse);
  // Throws: UserError if such a parameter has a gradient.
  void refuse_gradients();

 private:
  void find();
  std::string name_of(const torch::Tensor& parameter) const;

  torch::optim::Optimizer& optimizer_;
  const NamedParameters named_;
  std::set<const void*> trained_;
  std::vector<torch::Tensor> untrained_;
  std::size_t in_groups_ = 0;  // number of parameters of the optimizer, which may get more
};

}  // namespace farandole
