#include "farandole/train/distributed_optimizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "farandole/base/error.h"
#include "farandole/fusion/gradient_reducer.h"
#include "farandole/fusion/plan_agreement.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {
namespace {

std::vector<TensorSpec> describe(const std::vector<std::pair<std::string, torch::Tensor>>& parameters) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : parameters)
    specs.push_back({name, tensor.sizes().vec(), dtype_of(tensor)});
  return specs;
}

std::vector<std::pair<std::string, torch::Tensor>> that_train(
    const DistributedOptimizer::NamedParameters& parameters) {
  std::vector<std::pair<std::string, torch::Tensor>> result;
  for (const auto& item : parameters)
    if (item.value().requires_grad()) result.emplace_back(item.key(), item.value());
  if (result.empty()) throw UserError("DistributedOptimizer: no parameter requires a gradient");
  return result;
}

}  // namespace

struct DistributedOptimizer::Impl {
  Impl(Session& the_session, torch::optim::Optimizer& the_optimizer, const NamedParameters& named,
       const DistributedOptimizerOptions& the_options)
      : session(the_session), optimizer(the_optimizer), options(the_options), parameters(that_train(named)) {
    if (options.backward_passes_per_step < 1) throw UserError("backward_passes_per_step must be at least 1");
    auto plan = plan_buckets(describe(parameters), options.buckets);
    check_plan_agreement(session.communicator(), plan);
    communicator = session.new_communicator(session.waiting_for_gradients());
    reducer = std::make_unique<GradientReducer>(*communicator, std::move(plan),
                                                options.average ? ReduceOp::average : ReduceOp::sum,
                                                session.timeline());
    passes.assign(parameters.size(), 0);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto& tensor = parameters[i].second;
      views.push_back(
          torch::from_blob(reducer->data(i), tensor.sizes(), tensor.options().requires_grad(false)));
      attach(i);
    }
  }

  ~Impl() {
    for (auto& [accumulator, key] : hooks) accumulator->del_post_hook(key);
    // The buckets go with the reducer: gradients must not point into them any longer.
    for (auto& [name, tensor] : parameters) tensor.mutable_grad() = torch::Tensor();
  }

  void attach(std::size_t index) { parameters[index].second.mutable_grad() = views[index]; }

  // A parameter's accumulator lives as long as someone holds it; its post hook runs when the gradient is in
  // place.
  void listen() {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i].second);
      auto hook = std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, i](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
            gradient_arrived(i);
            return outputs;
          });
      const auto key = accumulator->add_post_hook(std::move(hook));
      hooks.emplace_back(std::move(accumulator), key);
    }
  }

  void gradient_arrived(std::size_t i) {
    pack(i);
    if (++passes[i] == options.backward_passes_per_step) reducer->mark_ready(i);
    if (passes[i] > options.backward_passes_per_step)
      throw UserError(
          "a second backward came before step(); set backward_passes_per_step to the number of backward "
          "calls a step");
  }

  // Autograd replaces a gradient instead of adding to it where it was reset, is sparse, or itself needs a
  // graph.
  void pack(std::size_t i) {
    auto& gradient = parameters[i].second.mutable_grad();
    if (!gradient.defined() || gradient.is_same(views[i])) return;
    if (!gradient.is_sparse() && gradient.data_ptr() == views[i].data_ptr()) return;
    const torch::NoGradGuard no_grad;
    views[i].copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
    packed_bytes += bytes_of(views[i]);
    gradient = views[i];
  }

  void synchronize() {
    if (synchronized) return;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (passes[i] > 0 && passes[i] < options.backward_passes_per_step) reducer->mark_ready(i);
    reducer->finish();
    std::fill(passes.begin(), passes.end(), 0);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (reducer->present(i))
        attach(i);
      else
        parameters[i].second.mutable_grad() = torch::Tensor();
    }
    if (options.clip_norm) clip(*options.clip_norm);
    synchronized = true;
  }

  void clip(double bound) {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> norms;
    for (auto& [name, tensor] : parameters)
      if (tensor.grad().defined()) norms.push_back(tensor.grad().norm().to(torch::kFloat64));
    norm = norms.empty() ? 0.0 : torch::stack(norms).norm().item<double>();
    if (!(norm > bound)) return;
    for (auto& [name, tensor] : parameters)
      if (tensor.grad().defined()) tensor.mutable_grad().mul_(bound / (norm + 1e-6));
  }

  void zero_grad() {
    // Gradients that are thrown away may be on their way already: all ranks end the step that they began.
    if (std::any_of(passes.begin(), passes.end(), [](int n) { return n > 0; })) reducer->finish();
    reducer->zero();
    std::fill(passes.begin(), passes.end(), 0);
    for (std::size_t i = 0; i < parameters.size(); ++i) attach(i);
    synchronized = false;
  }

  Session& session;
  torch::optim::Optimizer& optimizer;
  const DistributedOptimizerOptions options;
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  std::vector<torch::Tensor> views;  // by parameter: its place in a bucket
  std::vector<int> passes;           // backward passes since zero_grad, by parameter
  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, std::uintptr_t>> hooks;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<GradientReducer> reducer;
  bool synchronized = false;
  double norm = std::numeric_limits<double>::quiet_NaN();
  std::atomic<std::size_t> packed_bytes{0};
};

DistributedOptimizer::DistributedOptimizer(Session& session, torch::optim::Optimizer& optimizer,
                                           const NamedParameters& parameters,
                                           DistributedOptimizerOptions options)
    : impl_(std::make_unique<Impl>(session, optimizer, parameters, options)) {
  impl_->listen();
}

DistributedOptimizer::~DistributedOptimizer() = default;

void DistributedOptimizer::zero_grad() {
  impl_->zero_grad();
}

void DistributedOptimizer::synchronize() {
  impl_->synchronize();
}

torch::Tensor DistributedOptimizer::step(torch::optim::Optimizer::LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    loss = impl_->optimizer.step([&] {
      impl_->synchronized = false;
      auto value = closure();
      impl_->synchronize();
      return value;
    });
  } else {
    impl_->synchronize();
    loss = impl_->optimizer.step();
  }
  impl_->synchronized = false;
  return loss;
}

double DistributedOptimizer::gradient_norm() const {
  return impl_->norm;
}
std::size_t DistributedOptimizer::gradient_bytes() const {
  return impl_->reducer->bucket_bytes();
}
std::size_t DistributedOptimizer::packed_bytes() const {
  return impl_->packed_bytes;
}
torch::optim::Optimizer& DistributedOptimizer::inner() {
  return impl_->optimizer;
}

}  // namespace farandole
