#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

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

// A layer whose gradients are computed in buckets, and a copy that trains without them.
struct LinearPair {
  explicit LinearPair(std::int64_t out, int passes = 1)
      : linear(same_linear(4, out)),
        copy(same_linear(4, out)),
        optimizer(*session, sgd, linear->named_parameters(), {.backward_passes_per_step = passes}) {}
  void expect_same_gradients(int factor = 1) {
    optimizer.synchronize();
    EXPECT_TRUE(torch::allclose(linear->weight.grad(), factor * copy->weight.grad()));
  }

  Linear linear, copy;
  torch::optim::SGD sgd{linear->parameters(), 0.1}, plain{copy->parameters(), 0.1};
  DistributedOptimizer optimizer;
};

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
  LinearPair pair(4);
  const auto loss = [](Linear net, int step) {
    return net(torch::tanh(net(random({3, 4}, step)))).square().sum();
  };
  for (int step = 0; step < 4; ++step) {
    step_of(pair.optimizer, loss(pair.linear, step));
    train_step(pair.plain, [&] { return loss(pair.copy, step); });
    expect_same(pair.linear->named_parameters(), pair.copy->named_parameters(), 1e-5, 1e-8);
  }
  EXPECT_EQ(pair.optimizer.packed_bytes(), 0u);
}

// Autograd adds what another function computes in other memory, at any place in the order of uses.
TEST(Linear, AddsUpWithOtherUsesOfItsParameters) {
  for (int uses = 0; uses < 32; ++uses) {
    SCOPED_TRACE(uses);
    LinearPair pair(4);
    for (const auto& net : {pair.linear, pair.copy}) {
      auto y = random({3, 4}, uses);
      for (int use = 0; use < 5; ++use)
        y = torch::tanh((uses >> use & 1) != 0 ? torch::linear(y, net->weight, net->bias)
                                               : net.ptr()->forward(y));
      y.square().sum().backward();
    }
    pair.expect_same_gradients();
    EXPECT_TRUE(torch::allclose(pair.linear->bias.grad(), pair.copy->bias.grad()));
    EXPECT_EQ(pair.optimizer.packed_bytes() == 0, uses == 0);
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
  LinearPair pair(4);
  auto &linear = pair.linear, &copy = pair.copy;
  const auto inner = linear(random({3, 4}, 1)), outer = linear(torch::tanh(inner));
  std::vector<Tensor> kept;
  outer.grad_fn()->add_post_hook(std::make_unique<Keep>(kept));
  torch::linear(outer, linear->weight, linear->bias).square().sum().backward();
  torch::linear(copy(torch::tanh(copy(random({3, 4}, 1)))), copy->weight, copy->bias)
      .square()
      .sum()
      .backward();
  pair.expect_same_gradients();
  EXPECT_EQ(kept.size(), 1u);
}

TEST(Linear, AddsUpOverBackwardPasses) {
  LinearPair pair(2, /*passes=*/2);
  for (int pass = 0; pass < 2; ++pass) {
    pair.linear(random({3, 4}, pass)).square().sum().backward();
    pair.copy(random({3, 4}, pass)).square().sum().backward();
  }
  pair.expect_same_gradients();
  EXPECT_EQ(pair.optimizer.packed_bytes(), 0u);
}

// The results of torch::autograd::grad() belong to the caller; the next step must not write there.
TEST(Linear, GradientsAskedForAreTheCallers) {
  LinearPair pair(2);
  auto& linear = pair.linear;
  const auto asked = torch::autograd::grad({linear(random({3, 4}, 1)).square().sum()}, {linear->weight})[0];
  const auto before = asked.clone();
  step_of(pair.optimizer, linear(random({3, 4}, 2)).square().sum());
  EXPECT_TRUE(torch::equal(asked, before));
  EXPECT_EQ(pair.optimizer.packed_bytes(), 0u);
}

TEST(Linear, HooksAndSecondDerivatives) {
  LinearPair pair(2);
  const auto penalty = [](Linear net) {
    const auto x = random({3, 4}, 1).requires_grad_();
    const auto slope = torch::autograd::grad({torch::tanh(net(x)).sum()}, {x}, {}, true, true)[0];
    return slope.square().sum();
  };
  pair.linear->weight.register_hook([](const Tensor& gradient) { return 2 * gradient; });
  penalty(pair.linear).backward();
  penalty(pair.copy).backward();
  pair.expect_same_gradients(2);
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
  LinearPair pair(2);
  pair.linear(random({3, 4}, 1)).sum().backward();
  step_of(pair.optimizer, pair.linear(random({3, 4}, 2)).square().sum());
  pair.copy(random({3, 4}, 2)).square().sum().backward();
  pair.plain.step();
  EXPECT_TRUE(torch::allclose(pair.linear->weight, pair.copy->weight));
}

}  // namespace
}  // namespace farandole
