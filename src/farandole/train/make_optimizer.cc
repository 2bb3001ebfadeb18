#include "farandole/train/make_optimizer.h"

#include <torch/optim.h>

#include "farandole/base/error.h"

namespace farandole {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerChoice& choice,
                                                        const std::vector<torch::Tensor>& parameters) {
  using namespace torch::optim;
  const auto& [name, lr, momentum, weight_decay] = choice;
  if (name == "sgd")
    return std::make_unique<SGD>(parameters, SGDOptions(lr).momentum(momentum).weight_decay(weight_decay));
  if (name == "adam") return std::make_unique<Adam>(parameters, AdamOptions(lr).weight_decay(weight_decay));
  if (name == "adamw")
    return std::make_unique<AdamW>(parameters, AdamWOptions(lr).weight_decay(weight_decay));
  if (name == "rmsprop")
    return std::make_unique<RMSprop>(parameters,
                                     RMSpropOptions(lr).momentum(momentum).weight_decay(weight_decay));
  if (name == "adagrad")
    return std::make_unique<Adagrad>(parameters, AdagradOptions(lr).weight_decay(weight_decay));
  if (name == "lbfgs") return std::make_unique<LBFGS>(parameters, LBFGSOptions(lr));
  throw UserError("there is no optimizer '" + name + "'");
}

}  // namespace farandole
