#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"
#include "farandole/fusion/bucket_planner.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

using torch::Tensor;

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(7, 13));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({13})));
    second = register_module("second", torch::nn::Linear(13, 3));
    spare = register_module("spare", torch::nn::Linear(13, 3));
    nobody = register_module("nobody", torch::nn::Linear(2, 2));
    register_buffer("seen", torch::zeros({}, torch::kInt64));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x, bool use_spare = false) {
    const auto hidden = torch::tanh(norm(first(x)));
    return use_spare ? second(hidden) + spare(hidden) : second(hidden);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, spare{nullptr}, nobody{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};

constexpr std::int64_t rows_a_rank = 6;

Tensor all_x(int step) {
  torch::manual_seed(100 + step);
  return torch::randn({rows_a_rank * session->size(), 7}, torch::kFloat64);
}
Tensor own(const Tensor& all) {
  return all.slice(0, session->rank() * rows_a_rank, (session->rank() + 1) * rows_a_rank);
}
Tensor loss_of(const Tensor& output) {
  return (output - 0.3).pow(2).mean();
}

std::shared_ptr<Net> same_net(unsigned seed = 7) {
  torch::manual_seed(seed);
  return std::make_shared<Net>();
}

void expect_close(const torch::nn::Module& a, const torch::nn::Module& b, double relative = 1e-6) {
  for (const auto& item : a.named_parameters()) {
    const Tensor other = b.named_parameters()[item.key()];
    const double distance = (item.value() - other).norm().item<double>();
    EXPECT_LE(distance, relative * other.norm().item<double>() + 1e-12) << item.key();
  }
}

// A net that this rank trains on its share of each batch, and one that it trains alone on the whole batch.
struct SharedAndAlone {
  SharedAndAlone(double lr, double lr_alone, const DistributedOptimizerOptions& options = {})
      : sgd(net->parameters(), lr),
        reference(alone->parameters(), lr_alone),
        optimizer(*session, sgd, net->named_parameters(), options) {}
  explicit SharedAndAlone(const DistributedOptimizerOptions& options = {})
      : SharedAndAlone(0.1, 0.1, options) {}
  void backward(int batch) { loss_of(net->forward(own(all_x(batch)))).backward(); }
  void backward_alone(int batch) { loss_of(alone->forward(all_x(batch))).backward(); }

  std::shared_ptr<Net> net = same_net(), alone = same_net();
  torch::optim::SGD sgd, reference;
  DistributedOptimizer optimizer;
};

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)>;

std::vector<std::pair<std::string, MakeOptimizer>> optimizers() {
  using namespace torch::optim;
  return {
      {"SGD",
       [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.05).momentum(0.9).weight_decay(0.01)); }},
      {"Adam", [](auto p) { return std::make_unique<Adam>(p, AdamOptions(0.01).amsgrad(true)); }},
      {"AdamW", [](auto p) { return std::make_unique<AdamW>(p, AdamWOptions(0.01).weight_decay(0.1)); }},
      {"RMSprop",
       [](auto p) {
         return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).momentum(0.5).centered(true));
       }},
      {"Adagrad", [](auto p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.05)); }}};
}

// N ranks on their shares and one process on the concatenated batch must compute the same parameters,
// even with tiny buckets.
TEST(DistributedOptimizer, MatchesOneProcessOnTheConcatenatedBatch) {
  for (const auto& [name, make] : optimizers()) {
    for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{400}, std::size_t{1} << 20}) {
      const auto net = same_net(), alone = same_net();
      const auto sgd = make(net->parameters()), reference = make(alone->parameters());
      DistributedOptimizer optimizer(*session, *sgd, net->named_parameters(),
                                     {.clip_norm = 0.5, .buckets = {bucket_bytes, bucket_bytes}});
      for (int step = 0; step < 5; ++step) {
        train_step(optimizer, [&] { return loss_of(net->forward(own(all_x(step)))); });
        reference->zero_grad();
        loss_of(alone->forward(all_x(step))).backward();
        torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.5);
        reference->step();
      }
      SCOPED_TRACE(name);
      expect_close(*net, *alone);
      EXPECT_LE(optimizer.packed_bytes(), 5 * optimizer.gradient_bytes());
    }
  }
}

TEST(DistributedOptimizer, AccumulatesOverBackwardPasses) {
  SharedAndAlone both({.backward_passes_per_step = 3});
  for (int step = 0; step < 3; ++step) {
    const int passes = step == 2 ? 2 : 3;  // the last group of an epoch may be short
    both.optimizer.zero_grad();
    both.reference.zero_grad();
    for (int pass = 0; pass < passes; ++pass) {
      both.backward(10 * step + pass);
      both.backward_alone(10 * step + pass);
    }
    both.optimizer.step();
    both.reference.step();
  }
  expect_close(*both.net, *both.alone);
}

TEST(DistributedOptimizer, SumsOnDemand) {
  SharedAndAlone both(0.01, 0.01 * session->size(), {.average = false});
  both.backward(1);
  both.optimizer.step();
  both.backward_alone(1);
  both.reference.step();
  expect_close(*both.net, *both.alone);
}

// "spare" has a gradient only on rank 0, and "nobody" has none: with weight decay, a zero
// gradient would change it.
TEST(DistributedOptimizer, ParametersWithoutGradient) {
  const auto net = same_net();
  const auto before = net->nobody->weight.detach().clone();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.5));
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters());
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    loss_of(net->forward(own(all_x(step)), session->rank() == 0)).backward();
    const auto& spare = net->spare->weight;
    const auto gradient_here = spare.grad().defined() ? spare.grad().clone() : torch::zeros_like(spare);
    optimizer.synchronize();
    auto sum = session->allreduce(gradient_here, ReduceOp::average);
    EXPECT_TRUE(torch::allclose(net->spare->weight.grad(), sum));
    EXPECT_FALSE(net->nobody->weight.grad().defined());
    optimizer.step();
  }
  EXPECT_TRUE(torch::equal(net->nobody->weight, before));
  expect_equal_on_all_ranks(net->named_parameters());
}

TEST(DistributedOptimizer, GradientsThatTheInnerOptimizerResets) {
  SharedAndAlone both;
  for (int step = 0; step < 3; ++step) {
    both.sgd.zero_grad();  // the inner optimizer's: gradients become undefined
    both.backward(step);
    both.optimizer.step();
    both.reference.zero_grad();
    both.backward_alone(step);
    both.reference.step();
  }
  expect_close(*both.net, *both.alone);
  EXPECT_GT(both.optimizer.packed_bytes(), 0u);
}

TEST(DistributedOptimizer, ASkippedStepLeavesNothingBehind) {
  SharedAndAlone both;
  both.backward(1);  // thrown away on all ranks, as after an overflow
  both.optimizer.zero_grad();
  both.backward(2);
  both.optimizer.step();
  both.backward_alone(2);
  both.reference.step();
  expect_close(*both.net, *both.alone);
}

// With a line search, the ranks must see the same loss: otherwise they evaluate the closure
// at different places.
class Lbfgs : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(LineSearch, Lbfgs, testing::Bool());

TEST_P(Lbfgs, TakesTheStepsOfOneProcess) {
  const auto net = same_net(), alone = same_net();
  auto options = torch::optim::LBFGSOptions(0.5).max_iter(4);
  if (GetParam()) options.line_search_fn("strong_wolfe");
  torch::optim::LBFGS lbfgs({net->first->weight, net->second->weight}, options);
  torch::optim::LBFGS reference({alone->first->weight, alone->second->weight}, options);
  for (auto* module : {net.get(), alone.get()})
    for (auto& item : module->named_parameters())
      if (item.key() != "first.weight" && item.key() != "second.weight")
        item.value().set_requires_grad(false);
  DistributedOptimizer optimizer(*session, lbfgs, net->named_parameters());
  for (int step = 0; step < 2; ++step) {
    optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = loss_of(net->forward(own(all_x(step))));
      loss.backward();
      return loss;
    });
    reference.step([&] {
      reference.zero_grad();
      auto loss = loss_of(alone->forward(all_x(step)));
      loss.backward();
      return loss;
    });
  }
  expect_close(*net, *alone, 1e-6);
}

std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(DistributedOptimizer, RefusesParametersThatItDoesNotTrain) {
  const auto net = same_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto part = net->first->named_parameters();
  EXPECT_THAT(refusal_of([&] { DistributedOptimizer(*session, sgd, part); }),
              testing::HasSubstr("not among the named parameters"));

  net->first->weight.set_requires_grad(false);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters());
  const auto step = [&] { train_step(optimizer, [&] { return loss_of(net->forward(own(all_x(1)))); }); };
  step();
  net->first->weight.set_requires_grad(true);
  EXPECT_THAT(refusal_of(step), testing::HasSubstr("the parameter first.weight has a gradient"));
  net->first->weight.set_requires_grad(false);
  net->first->weight.mutable_grad() = Tensor();
  optimizer.zero_grad();
  step();

  auto added = torch::ones({2, 3}, torch::kFloat64).set_requires_grad(true);
  sgd.add_param_group(torch::optim::OptimizerParamGroup({added}));
  (added * added).sum().backward();
  EXPECT_THAT(refusal_of(step), testing::HasSubstr("a parameter of shape [2, 3] has a gradient"));
}

TEST(DistributedOptimizer, RefusesTwoBackwardsInOneStep) {
  const auto net = same_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters());
  loss_of(net->forward(own(all_x(1)))).backward();
  EXPECT_THROW(loss_of(net->forward(own(all_x(1)))).backward(), std::exception);
}

TEST(DistributedOptimizer, DifferentModelsAreRefusedOnAllRanks) {
  if (session->size() == 1) GTEST_SKIP() << "needs two ranks";
  torch::nn::Linear linear(3, session->rank() == 0 ? 4 : 5);
  torch::optim::SGD sgd(linear->parameters(), 0.1);
  EXPECT_THROW(DistributedOptimizer(*session, sgd, linear->named_parameters()), UserError);
}

TEST(Broadcast, ParametersBuffersAndOptimizerState) {
  for (const auto& [name, make] : optimizers()) {
    SCOPED_TRACE(name);
    const auto net = same_net(static_cast<unsigned>(session->rank()) + 1);
    net->named_buffers()["seen"].fill_(session->rank() + 5);
    const auto optimizer = make(net->parameters());
    if (session->rank() == 0) {  // the others have no state yet
      loss_of(net->forward(torch::ones({2, 7}, torch::kFloat64))).backward();
      optimizer->step();
      for (auto& group : optimizer->param_groups()) group.options().set_lr(0.123);
    }
    session->broadcast(*net);
    session->broadcast(*optimizer);
    EXPECT_EQ(net->named_buffers()["seen"].item<int>(), 5);
    EXPECT_DOUBLE_EQ(optimizer->param_groups()[0].options().get_lr(), 0.123);
    // From here on all ranks must be bit-wise equal.
    net->zero_grad();
    loss_of(net->forward(torch::ones({2, 7}, torch::kFloat64) * 0.5)).backward();
    optimizer->step();
    expect_equal_on_all_ranks(net->named_parameters());
    const auto names = numbered_parameters(*optimizer);
    const auto state = export_optimizer_state(*optimizer, names);
    EXPECT_EQ(session->allreduce(torch::tensor(static_cast<std::int64_t>(state.size())), ReduceOp::max)
                  .item<std::int64_t>(),
              static_cast<std::int64_t>(state.size()));
  }
}

// For any sequence of plans, parameters and optimizer state are bit-wise equal to those of one plan and
// equal on all ranks.
TEST(DistributedOptimizer, TuningChangesNoBit) {
  const auto tuned_net = same_net(), net = same_net();
  torch::optim::Adam adam(tuned_net->parameters(), 0.01), same(net->parameters(), 0.01);
  const BucketOptions small{200, 200};
  DistributedOptimizer tuned(*session, adam, tuned_net->named_parameters(),
                             {.clip_norm = 0.5, .buckets = small, .tune = true});
  DistributedOptimizer plain(*session, same, net->named_parameters(), {.clip_norm = 0.5, .buckets = small});
  const auto step_of = [](Net& model, DistributedOptimizer& optimizer, int step) {
    train_step(optimizer, [&] { return loss_of(model.forward(own(all_x(step)))); });
  };
  int steps = 0;
  for (; steps < 200 && (steps < 5 || (session->size() > 1 && !tuned.tuned())); ++steps) {
    step_of(*tuned_net, tuned, steps);
    step_of(*net, plain, steps);
  }
  for (int more = 0; more < 2; ++more) {
    step_of(*tuned_net, tuned, 1000 + more);
    step_of(*net, plain, 1000 + more);
  }
  expect_same(net->named_parameters(), tuned_net->named_parameters());
  if (session->size() == 1) return;
  const auto found = tuned.tuned();
  ASSERT_TRUE(found);
  EXPECT_LE(found->steps, 4 * Autotuner::rounds * Autotuner::steps_a_turn);
  EXPECT_GT(found->steps, 0);
  auto bytes = torch::tensor(static_cast<std::int64_t>(found->bucket_bytes));
  const auto here = bytes.clone();
  session->broadcast_(bytes);
  EXPECT_TRUE(torch::equal(bytes, here));
}

}  // namespace
}  // namespace farandole
