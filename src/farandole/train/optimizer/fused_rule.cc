#include "farandole/train/optimizer/fused_rule.h"

#include <torch/optim.h>
#include <typeinfo>

#include "farandole/train/optimizer/bucket_views.h"

namespace farandole {
namespace {

using torch::Tensor;

// Returns the state of the parameter; creates it if there is none.
template <class State>
State& state_of(torch::optim::Optimizer& optimizer, const Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (state == nullptr) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

template <class Set>
void settle_field(const Tensor& now, const Tensor& place, Set set) {
  if (same_place(now, place)) return;
  if (now.defined())
    place.copy_(now);
  else
    place.zero_();
  set(place);
}

class FusedSgd final : public FusedRule {
 public:
  explicit FusedSgd(torch::optim::SGD& optimizer) : optimizer_(optimizer) {}

  std::size_t fields(const Options& options) const override { return of(options).momentum() != 0 ? 1 : 0; }
  bool keeps_zeros(const Options&) const override { return true; }

  std::int64_t settle(const Tensor& parameter, const Options&, std::span<const Tensor> places) override {
    if (places.empty()) return 0;
    auto& state = state_of<torch::optim::SGDParamState>(optimizer_, parameter);
    const bool first = !state.momentum_buffer().defined();
    settle_field(state.momentum_buffer(), places[0], [&](const Tensor& t) { state.momentum_buffer(t); });
    return first ? 0 : 1;
  }

  void update(const FlatRun& run, const Options& options, std::int64_t earlier,
              const FusedScalars& scalars) const override {
    const auto& o = of(options);
    std::vector<Tensor> momentum;
    if (o.momentum() != 0) momentum.push_back(run.state[0]);
    at::_fused_sgd_({run.parameters}, {run.gradients}, momentum, o.weight_decay(), o.momentum(), o.lr(),
                    o.dampening(), o.nesterov(), /*maximize=*/false, /*is_first_step=*/earlier == 0,
                    scalars.scale, scalars.leave_out);
  }

 private:
  static const torch::optim::SGDOptions& of(const Options& options) {
    return static_cast<const torch::optim::SGDOptions&>(options);
  }
  torch::optim::SGD& optimizer_;
};

// Adam and AdamW differ in the types of their options and state, and in weight decay.
template <class Optimizer, class AdamOptions, class State, auto kernel>
class FusedAdam final : public FusedRule {
 public:
  explicit FusedAdam(Optimizer& optimizer) : optimizer_(optimizer) {}

  std::size_t fields(const Options& options) const override { return of(options).amsgrad() ? 3 : 2; }
  bool keeps_zeros(const Options& options) const override { return of(options).eps() > 0; }

  std::int64_t settle(const Tensor& parameter, const Options&, std::span<const Tensor> places) override {
    auto& state = state_of<State>(optimizer_, parameter);
    settle_field(state.exp_avg(), places[0], [&](const Tensor& t) { state.exp_avg(t); });
    settle_field(state.exp_avg_sq(), places[1], [&](const Tensor& t) { state.exp_avg_sq(t); });
    if (places.size() > 2)
      settle_field(state.max_exp_avg_sq(), places[2], [&](const Tensor& t) { state.max_exp_avg_sq(t); });
    const auto earlier = state.step();
    state.step(earlier + 1);
    return earlier;
  }

  void update(const FlatRun& run, const Options& options, std::int64_t earlier,
              const FusedScalars& scalars) const override {
    const auto& o = of(options);
    const auto [beta1, beta2] = o.betas();
    // The kernels of CUDA read a float32.
    const auto type = run.parameters.is_cuda() ? torch::kFloat32 : torch::kFloat64;
    const auto step = torch::full({}, static_cast<double>(earlier + 1), run.parameters.options().dtype(type));
    std::vector<Tensor> largest;
    if (o.amsgrad()) largest.push_back(run.state[2]);
    kernel({run.parameters}, {run.gradients}, {run.state[0]}, {run.state[1]}, largest, {step}, o.lr(), beta1,
           beta2, o.weight_decay(), o.eps(), o.amsgrad(), /*maximize=*/false, scalars.scale,
           scalars.leave_out);
  }

 private:
  static const AdamOptions& of(const Options& options) { return static_cast<const AdamOptions&>(options); }
  Optimizer& optimizer_;
};

using AdamRule = FusedAdam<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState,
                           &at::_ops::_fused_adam_::call>;
using AdamWRule = FusedAdam<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState,
                            &at::_ops::_fused_adamw_::call>;

}  // namespace

std::unique_ptr<FusedRule> make_fused_rule(torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  const auto& type = typeid(optimizer);
  if (type == typeid(SGD)) return std::make_unique<FusedSgd>(static_cast<SGD&>(optimizer));
  if (type == typeid(torch::optim::Adam))
    return std::make_unique<AdamRule>(static_cast<torch::optim::Adam&>(optimizer));
  if (type == typeid(torch::optim::AdamW))
    return std::make_unique<AdamWRule>(static_cast<torch::optim::AdamW&>(optimizer));
  return nullptr;
}

}  // namespace farandole
