#include "farandole/train/torch_optimizers.h"

#include <fmt/format.h>
#include <map>
#include <sstream>
#include <torch/optim.h>

#include "farandole/base/error.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {
namespace {

using torch::Tensor;

// Lists the fields of each optimizer's state once, for both directions.
template <class State, class Visit>
void visit_adam(State& state, Visit visit) {
  visit.number(
      "step", [&] { return state.step(); }, [&](std::int64_t value) { state.step(value); });
  visit.tensor(
      "exp_avg", [&] { return state.exp_avg(); }, [&](Tensor value) { state.exp_avg(value); });
  visit.tensor(
      "exp_avg_sq", [&] { return state.exp_avg_sq(); }, [&](Tensor value) { state.exp_avg_sq(value); });
  visit.tensor(
      "max_exp_avg_sq", [&] { return state.max_exp_avg_sq(); },
      [&](Tensor value) { state.max_exp_avg_sq(value); });
}

template <class Visit>
void visit_fields(torch::optim::AdamParamState& state, Visit visit) {
  visit_adam(state, visit);
}

template <class Visit>
void visit_fields(torch::optim::AdamWParamState& state, Visit visit) {
  visit_adam(state, visit);
}

template <class Visit>
void visit_fields(torch::optim::SGDParamState& state, Visit visit) {
  visit.tensor(
      "momentum_buffer", [&] { return state.momentum_buffer(); },
      [&](Tensor value) { state.momentum_buffer(value); });
}

template <class Visit>
void visit_fields(torch::optim::RMSpropParamState& state, Visit visit) {
  visit.number(
      "step", [&] { return state.step(); }, [&](std::int64_t value) { state.step(value); });
  visit.tensor(
      "square_avg", [&] { return state.square_avg(); }, [&](Tensor value) { state.square_avg(value); });
  visit.tensor(
      "momentum_buffer", [&] { return state.momentum_buffer(); },
      [&](Tensor value) { state.momentum_buffer(value); });
  visit.tensor(
      "grad_avg", [&] { return state.grad_avg(); }, [&](Tensor value) { state.grad_avg(value); });
}

template <class Visit>
void visit_fields(torch::optim::AdagradParamState& state, Visit visit) {
  visit.number(
      "step", [&] { return state.step(); }, [&](std::int64_t value) { state.step(value); });
  visit.tensor(
      "sum", [&] { return state.sum(); }, [&](Tensor value) { state.sum(value); });
}

// L-BFGS keeps its state, which is that of all parameters, under the first one.
template <class Visit>
void visit_fields(torch::optim::LBFGSParamState& state, Visit visit) {
  const auto scalars = [](double a, double b) { return torch::tensor({a, b}, torch::kFloat64); };
  const auto stacked = [](const auto& list) {
    return list.empty() ? Tensor() : torch::stack(std::vector<Tensor>(list.begin(), list.end()));
  };
  visit.number(
      "func_evals", [&] { return state.func_evals(); }, [&](std::int64_t value) { state.func_evals(value); });
  visit.number(
      "n_iter", [&] { return state.n_iter(); }, [&](std::int64_t value) { state.n_iter(value); });
  visit.other(
      "t_and_prev_loss", [&] { return scalars(state.t(), state.prev_loss()); },
      [&](Tensor value) {
        state.t(value[0].item<double>());
        state.prev_loss(value[1].item<double>());
      });
  visit.other(
      "d", [&] { return state.d(); }, [&](Tensor value) { state.d(value); });
  visit.other(
      "H_diag", [&] { return state.H_diag(); }, [&](Tensor value) { state.H_diag(value); });
  visit.other(
      "prev_flat_grad", [&] { return state.prev_flat_grad(); },
      [&](Tensor value) { state.prev_flat_grad(value); });
  visit.other(
      "old_dirs", [&] { return stacked(state.old_dirs()); },
      [&](Tensor value) {
        for (const auto& row : value.unbind()) state.old_dirs().push_back(row.clone());
      });
  visit.other(
      "old_stps", [&] { return stacked(state.old_stps()); },
      [&](Tensor value) {
        for (const auto& row : value.unbind()) state.old_stps().push_back(row.clone());
      });
  visit.other(
      "ro", [&] { return stacked(state.ro()); },
      [&](Tensor value) {
        for (const auto& row : value.unbind()) state.ro().push_back(row.clone());
      });
}

struct Export {
  const std::string& parameter;
  NamedTensors& out;

  template <class Get, class Set>
  void number(const char* field, Get get, Set) const {
    out.emplace_back(parameter + "/" + field, torch::tensor(std::int64_t{get()}, torch::kInt64));
  }
  template <class Get, class Set>
  void tensor(const char* field, Get get, Set) const {
    if (Tensor value = get(); value.defined()) out.emplace_back(parameter + "/" + field, value);
  }
  template <class Get, class Set>
  void other(const char* field, Get get, Set set) const {
    tensor(field, get, set);
  }
};

struct Import {
  const std::string& parameter;
  const Tensor& like;
  const std::map<std::string, Tensor>& in;

  const Tensor* find(const char* field) const {
    const auto found = in.find(parameter + "/" + field);
    return found == in.end() ? nullptr : &found->second;
  }
  template <class Get, class Set>
  void number(const char* field, Get, Set set) const {
    if (const Tensor* value = find(field)) set(value->template item<std::int64_t>());
  }
  template <class Get, class Set>
  void tensor(const char* field, Get, Set set) const {
    const Tensor* value = find(field);
    if (value == nullptr) return;
    if (value->sizes() != like.sizes())
      throw UserError("optimizer state " + parameter + "/" + field + " does not have the parameter's shape");
    set(placed(*value));
  }
  // A tensor that does not have the parameter's shape.
  template <class Get, class Set>
  void other(const char* field, Get, Set set) const {
    if (const Tensor* value = find(field)) set(placed(*value));
  }
  Tensor placed(const Tensor& value) const { return value.to(like.device()); }
};

// Calls `function` with a null pointer to the type of the optimizer's state.
template <class Function>
void with_state_type(torch::optim::Optimizer& optimizer, Function function) {
  using namespace torch::optim;
  if (dynamic_cast<AdamW*>(&optimizer) != nullptr) return function(static_cast<AdamWParamState*>(nullptr));
  if (dynamic_cast<Adam*>(&optimizer) != nullptr) return function(static_cast<AdamParamState*>(nullptr));
  if (dynamic_cast<SGD*>(&optimizer) != nullptr) return function(static_cast<SGDParamState*>(nullptr));
  if (dynamic_cast<RMSprop*>(&optimizer) != nullptr)
    return function(static_cast<RMSpropParamState*>(nullptr));
  if (dynamic_cast<Adagrad*>(&optimizer) != nullptr)
    return function(static_cast<AdagradParamState*>(nullptr));
  if (dynamic_cast<LBFGS*>(&optimizer) != nullptr) return function(static_cast<LBFGSParamState*>(nullptr));
  throw UserError(
      "the state of this optimizer is not supported; use SGD, Adam, AdamW, RMSprop, Adagrad or L-BFGS");
}

template <class Function>
void for_each_parameter(torch::optim::Optimizer& optimizer, const std::vector<std::string>& names,
                        Function function) {
  std::size_t index = 0;
  for (auto& group : optimizer.param_groups())
    for (auto& parameter : group.params()) function(names.at(index++), parameter);
}

}  // namespace

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

std::vector<std::string> numbered_parameters(const torch::optim::Optimizer& optimizer) {
  std::vector<std::string> names;
  for (const auto& group : optimizer.param_groups())
    for (std::size_t i = 0; i < group.params().size(); ++i) names.push_back(std::to_string(names.size()));
  return names;
}

void visit_optimizer_state(torch::optim::Optimizer& optimizer, const VisitOptimizerState& visit) {
  with_state_type(optimizer, [](auto*) {});
  for (auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) visit(parameter, *found->second);
    }
}

NamedTensors named_state(torch::optim::Optimizer& optimizer, torch::optim::OptimizerParamState& state,
                         const std::string& parameter) {
  NamedTensors result;
  with_state_type(optimizer, [&](auto* type) {
    visit_fields(static_cast<std::remove_pointer_t<decltype(type)>&>(state), Export{parameter, result});
  });
  return result;
}

NamedTensors export_optimizer_state(torch::optim::Optimizer& optimizer,
                                    const std::vector<std::string>& names) {
  NamedTensors result;
  with_state_type(optimizer, [](auto*) {});
  for_each_parameter(optimizer, names, [&](const std::string& name, Tensor& parameter) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found != optimizer.state().end())
      for (auto& named : named_state(optimizer, *found->second, name)) result.push_back(std::move(named));
  });
  return result;
}

void import_optimizer_state(torch::optim::Optimizer& optimizer, const std::vector<std::string>& names,
                            const NamedTensors& state) {
  const std::map<std::string, Tensor> by_name(state.begin(), state.end());
  with_state_type(optimizer, [&](auto* type) {
    using State = std::remove_pointer_t<decltype(type)>;
    optimizer.state().clear();
    for_each_parameter(optimizer, names, [&](const std::string& name, Tensor& parameter) {
      const auto first = by_name.lower_bound(name + "/");
      if (first == by_name.end() || !first->first.starts_with(name + "/")) return;
      auto restored = std::make_unique<State>();
      visit_fields(*restored, Import{name, parameter, by_name});
      optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(restored);
    });
  });
}

std::string table_of(const NamedTensors& state) {
  std::string table;
  for (const auto& [name, value] : state) {
    table += fmt::format("{} {} {}", name, static_cast<int>(dtype_of(value)), value.dim());
    for (const auto extent : value.sizes()) table += fmt::format(" {}", extent);
    table += '\n';
  }
  return table;
}

NamedTensors zeros_from(const std::string& table) {
  NamedTensors state;
  std::istringstream stream(table);
  std::string name;
  for (int dtype = 0, dimensions = 0; stream >> name >> dtype >> dimensions;) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(dimensions));
    for (auto& extent : shape) stream >> extent;
    state.emplace_back(name, torch::zeros(shape, scalar_type_of(static_cast<DType>(dtype))));
  }
  return state;
}

}  // namespace farandole
