// Optimizers of LibTorch by their names on the command line.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <vector>

namespace farandole {

struct OptimizerChoice {
  std::string name;  // sgd, adam, adamw, rmsprop, adagrad or lbfgs
  double lr = 0.01;
  double momentum = 0;      // For sgd and rmsprop.
  double weight_decay = 0;  // lbfgs has none.
};

// Throws: UserError if there is no optimizer with this name.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerChoice& choice,
                                                        const std::vector<torch::Tensor>& parameters);

}  // namespace farandole
