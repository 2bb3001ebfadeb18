// LibTorch's optimizers by their names on the command line, and their state as named tensors, for
// broadcasts and checkpoints.
// Thread safety: call from the training thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <utility>
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

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Returns "0", "1", …: names for the parameters of all groups, in order, for callers without other names.
std::vector<std::string> numbered_parameters(const torch::optim::Optimizer& optimizer);

// Returns ("conv1.weight/momentum_buffer", tensor), …; counters are int64 scalars. `names` has a name for
// each parameter of all groups, in order. Parameters without state are left out. The tensors are the
// optimizer's own, not copies, except for the history of L-BFGS, whose state belongs to its first parameter.
// Throws: UserError if the optimizer is not SGD, Adam, AdamW, RMSprop, Adagrad or L-BFGS.
NamedTensors export_optimizer_state(torch::optim::Optimizer& optimizer,
                                    const std::vector<std::string>& names);

// Calls `visit` for each parameter that has state, in the order of the groups.
// Throws: as export_optimizer_state().
using VisitOptimizerState =
    std::function<void(const torch::Tensor& parameter, torch::optim::OptimizerParamState& state)>;
void visit_optimizer_state(torch::optim::Optimizer& optimizer, const VisitOptimizerState& visit);
// The tensors of one parameter's state, as export_optimizer_state() returns them.
NamedTensors named_state(torch::optim::Optimizer& optimizer, torch::optim::OptimizerParamState& state,
                         const std::string& parameter);

// Replaces the whole state of the optimizer. It keeps tensors that are on the device of their parameter,
// without a copy.
// Throws: UserError if names or shapes do not belong to it.
void import_optimizer_state(torch::optim::Optimizer& optimizer, const std::vector<std::string>& names,
                            const NamedTensors& state);

// Returns one line per tensor without its values. Another rank needs this table to allocate the tensors.
std::string table_of(const NamedTensors& state);
NamedTensors zeros_from(const std::string& table);

}  // namespace farandole
