// Training that would go wrong silently is refused on all ranks, and the session knows its optimizers.
// mistakes.sh shows how such a program ends.
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "error_message.h"
#include "train/mpi_session.h"

#include "farandole/base/error.h"
#include "farandole/train/session_internals.h"

namespace farandole {
namespace {

using testing::HasSubstr;

struct Trained {
  explicit Trained(unsigned seed = 3) {
    torch::manual_seed(seed);
    net = torch::nn::Sequential(torch::nn::Linear(4, 5), torch::nn::Linear(5, 2));
    sgd.emplace(net->parameters(), 0.1);
  }
  torch::Tensor loss() { return net->forward(torch::ones({2, 4})).sum() * (session->rank() + 1); }

  torch::nn::Sequential net{nullptr};
  std::optional<torch::optim::SGD> sgd;
};

TEST(Misuse, DifferentParametersAtTheFirstStep) {
  if (session->size() == 1) GTEST_SKIP() << "needs several ranks";
  const int last = session->size() - 1;
  for (const bool averages : {false, true}) {
    Trained t;
    if (session->rank() == last) {
      const torch::NoGradGuard no_grad;
      t.net->parameters()[2].add_(1);
    }
    const auto told = message_of<UserError>([&] {
      DistributedOptimizerOptions options;
      if (averages) options.synchronization = parse_synchronization("parameters:4");
      DistributedOptimizer optimizer(*session, *t.sgd, t.net->named_parameters(), options);
      step_of(optimizer, t.loss());
    });
    EXPECT_THAT(told,
                HasSubstr("the parameters of rank " + std::to_string(last) + " differ from those of rank 0"));
    EXPECT_THAT(told, HasSubstr("1 of 4, the first is 1.weight"));
  }
}

// A rank without a batch finds out as well.
TEST(Misuse, DifferentParametersInAJoin) {
  if (session->size() == 1) GTEST_SKIP() << "needs several ranks";
  Trained t(static_cast<unsigned>(session->rank()));
  const auto told = message_of<UserError>([&] {
    DistributedOptimizer optimizer(*session, *t.sgd, t.net->named_parameters());
    Join join(*session, {&optimizer});
    if (session->rank() == 0) step_of(optimizer, t.loss());
  });
  EXPECT_THAT(told, HasSubstr("4 of 4, the first is 0.weight"));
}

TEST(Misuse, StepOfTheInnerOptimizer) {
  Trained t;
  const auto told = message_of<UserError>([&] {
    DistributedOptimizer optimizer(*session, *t.sgd, t.net->named_parameters());
    for (int i = 0; i < 2; ++i) {
      optimizer.zero_grad();
      t.loss().backward();
      t.sgd->step();
    }
  });
  EXPECT_THAT(told, HasSubstr("instead of the inner optimizer's"));
}

// Weight decay by hand, and gradients that are discarded, are no mistakes.
TEST(Misuse, ChangesAroundAStepAreAllowed) {
  Trained t;
  DistributedOptimizer optimizer(*session, *t.sgd, t.net->named_parameters());
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    t.loss().backward();
    optimizer.zero_grad();
    t.loss().backward();
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : t.net->parameters()) parameter.mul_(0.9);
    }
    optimizer.step();
  }
  expect_equal_on_all_ranks(t.net->named_parameters());
}

TEST(Misuse, ParameterThatTheOptimizerLacks) {
  Trained t;
  torch::optim::SGD sgd(t.net[0]->as<torch::nn::Linear>()->parameters(), 0.1);
  EXPECT_THAT(message_of<UserError>([&] { DistributedOptimizer(*session, sgd, t.net->named_parameters()); }),
              HasSubstr("the parameter 1.weight requires a gradient, but the optimizer does not have it"));
  for (auto& parameter : t.net[1]->as<torch::nn::Linear>()->parameters()) parameter.requires_grad_(false);
  DistributedOptimizer optimizer(*session, sgd, t.net->named_parameters());
  step_of(optimizer, t.loss());
}

TEST(Misuse, DeviceThatDoesNotExist) {
  EXPECT_THAT(message_of<UserError>([&] { session->use_device("gpu"); }),
              HasSubstr("cannot be 'gpu'; use cpu, cuda "));
}

TEST(Internals, KnowsItsOptimizers) {
  auto& internals = session->internals();
  Trained t, other;
  {
    DistributedOptimizer optimizer(*session, *t.sgd, t.net->named_parameters());
    EXPECT_EQ(internals.optimizer_of(*t.sgd), &optimizer);
    EXPECT_EQ(internals.optimizer_of(*other.sgd), nullptr);
  }
  EXPECT_EQ(internals.optimizer_of(*t.sgd), nullptr);
}

TEST(Internals, StepsCarryTheWishToStop) {
  auto& internals = session->internals();
  bool wish = false;
  internals.stop_wish = [&] { return wish && session->rank() == session->size() - 1; };
  for (const bool averages : {false, true}) {
    Trained t;
    DistributedOptimizerOptions options;
    if (averages) options.synchronization = parse_synchronization("parameters:4");
    DistributedOptimizer optimizer(*session, *t.sgd, t.net->named_parameters(), options);
    wish = internals.stop_voted = false;
    const auto votes = internals.votes;
    for (int i = 0; i < 3; ++i) step_of(optimizer, t.loss());
    EXPECT_FALSE(internals.stop_voted);
    wish = true;
    for (int i = 0; i < 2; ++i) step_of(optimizer, t.loss());
    EXPECT_TRUE(internals.stop_voted);
    EXPECT_EQ(internals.votes, votes + 5);
  }
  internals.stop_wish = nullptr;
  internals.stop_voted = false;
}

}  // namespace
}  // namespace farandole
