#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/layers/fixtures.h"

#include "farandole/train/linear.h"

namespace farandole {
namespace {

using torch::Tensor;

Linear same_linear(std::int64_t in, std::int64_t out, bool bias = true) {
  torch::manual_seed(5);
  Linear linear(torch::nn::LinearOptions(in, out).bias(bias));
  linear->to(torch::kFloat64);
  return linear;
}

TEST(Linear, ComputesGradientsWhereTheyAreReduced) {
  for (const bool bias : {true, false}) {
    for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{}, {4}, {2, 3}, {0}}) {
      auto shape = rows;
      shape.push_back(6);
      auto linear = same_linear(6, 5, bias);
      torch::nn::Linear reference(torch::nn::LinearOptions(6, 5).bias(bias));
      reference->to(torch::kFloat64);
      {
        const torch::NoGradGuard no_grad;
        reference->weight.copy_(linear->weight);
        if (bias) reference->bias.copy_(linear->bias);
      }
      torch::optim::SGD sgd(linear->parameters(), 0.1);
      DistributedOptimizer optimizer(*session, sgd, linear->named_parameters());
      const auto x = random(shape, 1).requires_grad_(), x2 = x.detach().clone().requires_grad_();
      const auto y = linear->forward(x), y2 = reference->forward(x2);
      EXPECT_TRUE(torch::allclose(y, y2));
      y.square().sum().backward();
      y2.square().sum().backward();
      optimizer.synchronize();
      EXPECT_TRUE(torch::allclose(x.grad(), x2.grad()));
      EXPECT_TRUE(torch::allclose(linear->weight.grad(), reference->weight.grad()));
      if (bias) {
        EXPECT_TRUE(torch::allclose(linear->bias.grad(), reference->bias.grad()));
      }
      EXPECT_EQ(optimizer.packed_bytes(), 0u);
    }
  }
}

TEST(Linear, UsedTwiceAddsUp) {
  auto linear = same_linear(4, 4), copy = same_linear(4, 4);
  torch::optim::SGD sgd(linear->parameters(), 0.1), plain(copy->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, linear->named_parameters());
  const auto loss = [](Linear net, int step) {
    return net(torch::tanh(net(random({3, 4}, step)))).square().sum();
  };
  for (int step = 0; step < 4; ++step) {
    step_of(optimizer, loss(linear, step));
    plain.zero_grad();
    loss(copy, step).backward();
    plain.step();
    EXPECT_TRUE(torch::allclose(linear->weight, copy->weight));
    EXPECT_TRUE(torch::allclose(linear->bias, copy->bias));
  }
  EXPECT_EQ(optimizer.packed_bytes(), 0u);
}

// Autograd adds what another function computes in other memory, at any place in the order of uses.
TEST(Linear, AddsUpWithOtherUsesOfItsParameters) {
  for (int uses = 0; uses < 32; ++uses) {
    auto linear = same_linear(4, 4), copy = same_linear(4, 4);
    torch::optim::SGD sgd(linear->parameters(), 0.1);
    DistributedOptimizer optimizer(*session, sgd, linear->named_parameters());
    for (const auto& net : {linear, copy}) {
      auto y = random({3, 4}, uses);
      for (int use = 0; use < 5; ++use)
        y = torch::tanh((uses >> use & 1) != 0 ? torch::linear(y, net->weight, net->bias)
                                               : net.ptr()->forward(y));
      y.square().sum().backward();
    }
    optimizer.synchronize();
    EXPECT_TRUE(torch::allclose(linear->weight.grad(), copy->weight.grad())) << uses;
    EXPECT_TRUE(torch::allclose(linear->bias.grad(), copy->bias.grad())) << uses;
    EXPECT_EQ(optimizer.packed_bytes() == 0, uses == 0) << uses;
  }
}

// A hook may keep the gradient that the first use has computed. It must not change afterwards.
TEST(Linear, DoesNotAddToWhatAHookHasSeen) {
  struct Keep final : torch::autograd::FunctionPostHook {
    explicit Keep(std::vector<Tensor>& seen) : kept(seen) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      kept.push_back(outputs[1]);
      return outputs;
    }
    std::vector<Tensor>& kept;
  };
  auto linear = same_linear(4, 4), copy = same_linear(4, 4);
  torch::optim::SGD sgd(linear->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, linear->named_parameters());
  const auto inner = linear(random({3, 4}, 1)), outer = linear(torch::tanh(inner));
  std::vector<Tensor> kept;
  outer.grad_fn()->add_post_hook(std::make_unique<Keep>(kept));
  torch::linear(outer, linear->weight, linear->bias).square().sum().backward();
  torch::linear(copy(torch::tanh(copy(random({3, 4}, 1)))), copy->weight, copy->bias)
      .square()
      .sum()
      .backward();
  optimizer.synchronize();
  EXPECT_EQ(kept.size(), 1u);
  EXPECT_TRUE(torch::allclose(linear->weight.grad(), copy->weight.grad()));
}

TEST(Linear, AddsUpOverBackwardPasses) {
  auto linear = same_linear(4, 2), copy = same_linear(4, 2);
  torch::optim::SGD sgd(linear->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, linear->named_parameters(), {.backward_passes_per_step = 2});
  for (int pass = 0; pass < 2; ++pass) {
    linear(random({3, 4}, pass)).square().sum().backward();
    copy(random({3, 4}, pass)).square().sum().backward();
  }
  optimizer.synchronize();
  EXPECT_TRUE(torch::allclose(linear->weight.grad(), copy->weight.grad()));
  EXPECT_EQ(optimizer.packed_bytes(), 0u);
}

// The results of torch::autograd::grad() belong to the caller; the next step must not write there.
TEST(Linear, GradientsAskedForAreTheCallers) {
  auto linear = same_linear(4, 2);
  torch::optim::SGD sgd(linear->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, linear->named_parameters());
  const auto asked = torch::autograd::grad({linear(random({3, 4}, 1)).square().sum()}, {linear->weight})[0];
  const auto before = asked.clone();
  step_of(optimizer, linear(random({3, 4}, 2)).square().sum());
  EXPECT_TRUE(torch::equal(asked, before));
  EXPECT_EQ(optimizer.packed_bytes(), 0u);
}

TEST(Linear, HooksAndSecondDerivatives) {
  auto linear = same_linear(4, 2), copy = same_linear(4, 2);
  torch::optim::SGD sgd(linear->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, linear->named_parameters());
  const auto penalty = [](Linear net) {
    const auto x = random({3, 4}, 1).requires_grad_();
    const auto slope = torch::autograd::grad({torch::tanh(net(x)).sum()}, {x}, {}, true, true)[0];
    return slope.square().sum();
  };
  linear->weight.register_hook([](const Tensor& gradient) { return 2 * gradient; });
  penalty(linear).backward();
  penalty(copy).backward();
  optimizer.synchronize();
  EXPECT_TRUE(torch::allclose(linear->weight.grad(), 2 * copy->weight.grad()));
}

TEST(Linear, IsClonedAsWhatItIs) {
  const torch::nn::Sequential net(Linear(4, 3), torch::nn::Tanh(),
                                  Linear(torch::nn::LinearOptions(3, 2).bias(false)));
  auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  ASSERT_NE(copy, nullptr);
  const auto x = torch::randn({5, 4});
  EXPECT_TRUE(torch::equal(copy->forward(x), torch::nn::Sequential(net)->forward(x)));
  EXPECT_NE(copy->ptr(0)->as<Linear>(), nullptr);
  copy->parameters()[0].detach().add_(1);  // memory of its own
  EXPECT_FALSE(torch::equal(copy->parameters()[0], net->parameters()[0]));
  EXPECT_TRUE(copy->parameters()[0].requires_grad());
}

// Discarded gradients have no effect on later steps.
TEST(Linear, BackwardWithoutStep) {
  auto linear = same_linear(4, 2), copy = same_linear(4, 2);
  torch::optim::SGD sgd(linear->parameters(), 0.1), plain(copy->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, linear->named_parameters());
  linear(random({3, 4}, 1)).sum().backward();
  step_of(optimizer, linear(random({3, 4}, 2)).square().sum());
  copy(random({3, 4}, 2)).square().sum().backward();
  plain.step();
  EXPECT_TRUE(torch::allclose(linear->weight, copy->weight));
}

}  // namespace
}  // namespace farandole
