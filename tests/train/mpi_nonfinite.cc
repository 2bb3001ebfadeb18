// Steps in which a gradient is a NaN or an infinity on one rank.
#include <gmock/gmock.h>
#include <limits>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

namespace farandole {
namespace {

using torch::Tensor;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

struct Reader : torch::nn::Module {
  Reader() {
    words = register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 5).sparse(true)));
    first = register_module("first", torch::nn::Linear(5, 7));
    second = register_module("second", torch::nn::Linear(7, 3));
    to(torch::kFloat64);
  }
  Tensor loss(int rank, int step) {
    torch::manual_seed(1000 * rank + step);
    const auto x = words(torch::randint(20, {6}, torch::kInt64));
    return second(torch::tanh(first(x))).square().mean();
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear first{nullptr}, second{nullptr};
};

std::shared_ptr<Reader> same_reader() {
  torch::manual_seed(5);
  return std::make_shared<Reader>();
}

int last_rank() {
  return session->size() - 1;
}

// In bad steps, autograd multiplies the gradient of this tensor by NaN on the last rank.
void spoil(const Tensor& parameter, const bool& bad) {
  parameter.register_hook([&bad](const Tensor& gradient) {
    return bad && session->rank() == last_rank() ? gradient * not_a_number : gradient;
  });
}

void expect_same_parameters(const torch::nn::Module& a, const torch::nn::Module& b) {
  for (const auto& item : a.named_parameters())
    EXPECT_TRUE(torch::equal(item.value(), b.named_parameters()[item.key()])) << item.key();
}

DistributedOptimizerOptions options_for(OnNonFinite what, std::optional<double> clip_norm = {}) {
  DistributedOptimizerOptions options;
  options.clip_norm = clip_norm;
  options.buckets = {200, 100};
  options.sparse_parameters = {"words.weight"};
  options.on_nonfinite = what;
  return options;
}

// Parameters and momentum must be those of a run without the bad steps, bit by bit.
TEST(NonFinite, ASkippedStepChangesNothing) {
  for (const auto clip_norm : {std::optional<double>(), std::optional<double>(0.3)})
    for (const auto* spoiled : {"first.weight", "words.weight"}) {
      const auto net = same_reader(), without = same_reader();
      bool bad = false;
      if (spoiled == std::string("first.weight")) spoil(net->first->weight, bad);
      torch::optim::SGD sgd(net->parameters(), 0.1), reference(without->parameters(), 0.1);
      DistributedOptimizer optimizer(*session, sgd, net->named_parameters(),
                                     options_for(OnNonFinite::skip, clip_norm));
      DistributedOptimizer other(*session, reference, without->named_parameters(),
                                 options_for(OnNonFinite::skip, clip_norm));
      for (int step = 0; step < 9; ++step) {
        bad = step % 3 == 1;
        const bool bad_words =
            bad && spoiled == std::string("words.weight") && session->rank() == last_rank();
        optimizer.zero_grad();
        net->loss(session->rank(), step).backward();
        if (bad_words) net->words->weight.mutable_grad() = net->words->weight.grad() * not_a_number;
        if (step == 4) optimizer.synchronize();
        optimizer.step();
        ASSERT_EQ(optimizer.skipped().has_value(), bad) << spoiled << " step " << step;
        if (bad) {
          EXPECT_EQ(optimizer.skipped()->parameter(), spoiled);
          EXPECT_THAT(optimizer.skipped()->ranks(), testing::ElementsAre(last_rank()));
          continue;
        }
        other.zero_grad();
        without->loss(session->rank(), step).backward();
        other.step();
      }
      expect_same_parameters(*net, *without);
    }
}

TEST(NonFinite, AllRanksNameTheParameterAndTheRanks) {
  const auto net = same_reader();
  bool bad = false;
  spoil(net->second->bias, bad);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options_for(OnNonFinite::stop));
  const auto step = [&](int number) {
    optimizer.zero_grad();
    net->loss(session->rank(), number).backward();
    optimizer.step();
  };
  for (int number = 0; number < 3; ++number) step(number);
  bad = true;
  try {
    step(3);
    FAIL() << "a NaN was accepted";
  } catch (const NonFiniteGradient& error) {
    EXPECT_EQ(error.what(),
              "the gradient of second.bias has a NaN or an infinity on rank " + std::to_string(last_rank()));
  }
  bad = false;
  EXPECT_NO_THROW(step(4));
}

TEST(NonFinite, RanksOfAGroupAreNamedAsRanksOfTheJob) {
  const auto group = session->new_group({last_rank()});
  if (group == nullptr) return;
  const auto net = same_reader();
  bool bad = true;
  spoil(net->second->bias, bad);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto options = options_for(OnNonFinite::skip);
  options.group = group.get();
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options);
  optimizer.zero_grad();
  net->loss(session->rank(), 0).backward();
  optimizer.step();
  ASSERT_TRUE(optimizer.skipped());
  EXPECT_THAT(optimizer.skipped()->ranks(), testing::ElementsAre(last_rank()));
}

// NaNs spread to the gradients of all layers before the one that made them.
TEST(NonFinite, NamesTheLayerInWhichItBegan) {
  const auto net = same_reader();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options_for(OnNonFinite::skip));
  for (int number = 0; number < 3; ++number) {
    optimizer.zero_grad();
    torch::manual_seed(number);
    const auto hidden = torch::tanh(net->first(net->words(torch::randint(20, {6}, torch::kInt64))));
    if (number == 2)
      hidden.register_hook(
          [](const Tensor& gradient) { return gradient * std::numeric_limits<double>::infinity(); });
    net->second(hidden).square().mean().backward();
    optimizer.step();
  }
  ASSERT_TRUE(optimizer.skipped());
  EXPECT_THAT(optimizer.skipped()->parameter(), testing::StartsWith("first."));
  EXPECT_EQ(optimizer.skipped()->ranks().size(), static_cast<std::size_t>(session->size()));
}

TEST(NonFinite, UpdatesIfItIsAskedTo) {
  const auto net = same_reader();
  bool bad = true;
  spoil(net->first->weight, bad);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options_for(OnNonFinite::update));
  net->loss(session->rank(), 0).backward();
  optimizer.step();
  EXPECT_FALSE(optimizer.skipped());
  EXPECT_TRUE(net->first->weight.isnan().all().item<bool>());
  EXPECT_FALSE(net->second->weight.isnan().any().item<bool>());
}

// Ranks without batches take part in the decision.
TEST(NonFinite, SkipsInsideAJoin) {
  const auto net = same_reader(), without = same_reader();
  bool bad = false;
  spoil(net->first->weight, bad);
  torch::optim::SGD sgd(net->parameters(), 0.1), reference(without->parameters(), 0.1);
  const auto train = [](Reader& model, DistributedOptimizer& optimizer, bool& spoiled, int bad_step) {
    Join join(*session, {&optimizer});
    for (int step = 0; step < 2 + 2 * session->rank(); ++step) {
      spoiled = step == bad_step;
      if (step == 1 && bad_step < 0) continue;
      optimizer.zero_grad();
      model.loss(session->rank(), step).backward();
      optimizer.step();
    }
    join.finish();
  };
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options_for(OnNonFinite::skip));
  DistributedOptimizer other(*session, reference, without->named_parameters(),
                             options_for(OnNonFinite::skip));
  bool unused = false;
  train(*net, optimizer, bad, 1);
  train(*without, other, unused, -1);
  expect_same_parameters(*net, *without);
}

// The ranks do not look at their gradients together, so each decides alone and no rank waits.
TEST(NonFinite, ARankThatAveragesParametersSkipsAlone) {
  const auto net = same_reader();
  bool bad = false;
  spoil(net->first->weight, bad);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto options = options_for(OnNonFinite::skip);
  options.sparse_parameters = {};
  options.synchronization = {Synchronization::Kind::parameters, 2};
  net->words->options.sparse(false);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options);
  for (int step = 0; step < 6; ++step) {
    bad = step == 2 || step == 3;
    optimizer.zero_grad();
    net->loss(session->rank(), step).backward();
    optimizer.step();
    EXPECT_EQ(optimizer.skipped().has_value(), bad && session->rank() == last_rank());
    if (optimizer.skipped()) {
      EXPECT_THAT(optimizer.skipped()->ranks(), testing::ElementsAre(session->rank()));
    }
  }
  for (const auto& parameter : net->parameters()) EXPECT_TRUE(parameter.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace farandole
