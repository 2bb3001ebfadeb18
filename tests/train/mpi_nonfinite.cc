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

DistributedOptimizerOptions options_for(OnNonFinite what, std::optional<double> clip_norm = {}) {
  DistributedOptimizerOptions options;
  options.clip_norm = clip_norm;
  options.buckets = {200, 100};
  options.sparse_parameters = {"words.weight"};
  options.on_nonfinite = what;
  return options;
}

// A training in which the gradient of `spoiled`, a parameter of the net, is NaN on the last rank if `bad`.
struct SpoiledReader {
  explicit SpoiledReader(const char* spoiled, const DistributedOptimizerOptions& options)
      : optimizer(*session, sgd, net->named_parameters(), options) {
    spoil(net->named_parameters()[spoiled], bad);
  }
  void step(int number, bool is_bad) {
    bad = is_bad;
    train_step(optimizer, [&] { return net->loss(session->rank(), number); });
  }

  std::shared_ptr<Reader> net = same_reader();
  bool bad = false;
  torch::optim::SGD sgd{net->parameters(), 0.1};
  DistributedOptimizer optimizer;
};

// Parameters and momentum must be those of a run without the bad steps, bit by bit.
TEST(NonFinite, ASkippedStepChangesNothing) {
  for (const auto clip_norm : {std::optional<double>(), std::optional<double>(0.3)})
    for (const bool words : {false, true}) {  // Hooks do not see sparse gradients.
      const auto options = options_for(OnNonFinite::skip, clip_norm);
      SpoiledReader training("first.weight", options), without("first.weight", options);
      auto& [net, bad, sgd, optimizer] = training;
      for (int step = 0; step < 9; ++step) {
        const bool is_bad = step % 3 == 1;
        bad = is_bad && !words;
        optimizer.zero_grad();
        net->loss(session->rank(), step).backward();
        if (is_bad && words && session->rank() == last_rank())
          net->words->weight.mutable_grad() = net->words->weight.grad() * not_a_number;
        if (step == 4) optimizer.synchronize();
        optimizer.step();
        ASSERT_EQ(optimizer.skipped().has_value(), is_bad) << words << " step " << step;
        if (is_bad) {
          EXPECT_EQ(optimizer.skipped()->parameter(), words ? "words.weight" : "first.weight");
          EXPECT_THAT(optimizer.skipped()->ranks(), testing::ElementsAre(last_rank()));
        } else {
          without.step(step, false);
        }
      }
      expect_same(net->named_parameters(), without.net->named_parameters());
    }
}

TEST(NonFinite, AllRanksNameTheParameterAndTheRanks) {
  SpoiledReader training("second.bias", options_for(OnNonFinite::stop));
  for (int number = 0; number < 3; ++number) training.step(number, false);
  try {
    training.step(3, true);
    FAIL() << "a NaN was accepted";
  } catch (const NonFiniteGradient& error) {
    EXPECT_EQ(error.what(),
              "the gradient of second.bias has a NaN or an infinity on rank " + std::to_string(last_rank()));
  }
  EXPECT_NO_THROW(training.step(4, false));
}

TEST(NonFinite, RanksOfAGroupAreNamedAsRanksOfTheJob) {
  const auto group = session->new_group({last_rank()});
  if (group == nullptr) return;
  auto options = options_for(OnNonFinite::skip);
  options.group = group.get();
  SpoiledReader training("second.bias", options);
  training.step(0, true);
  ASSERT_TRUE(training.optimizer.skipped());
  EXPECT_THAT(training.optimizer.skipped()->ranks(), testing::ElementsAre(last_rank()));
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
  SpoiledReader training("first.weight", options_for(OnNonFinite::update));
  training.step(0, true);
  EXPECT_FALSE(training.optimizer.skipped());
  EXPECT_TRUE(training.net->first->weight.isnan().all().item<bool>());
  EXPECT_FALSE(training.net->second->weight.isnan().any().item<bool>());
}

// Ranks without batches take part in the decision.
TEST(NonFinite, SkipsInsideAJoin) {
  SpoiledReader spoiled("first.weight", options_for(OnNonFinite::skip)),
      without("first.weight", options_for(OnNonFinite::skip));
  for (auto* const training : {&spoiled, &without}) {
    Join join(*session, {&training->optimizer});
    for (int step = 0; step < 2 + 2 * session->rank(); ++step)
      if (step != 1 || training == &spoiled) training->step(step, step == 1);
    join.finish();
  }
  expect_same(spoiled.net->named_parameters(), without.net->named_parameters());
}

// The ranks do not look at their gradients together, so each decides alone and no rank waits.
TEST(NonFinite, ARankThatAveragesParametersSkipsAlone) {
  auto options = options_for(OnNonFinite::skip);
  options.sparse_parameters = {};
  options.synchronization = {Synchronization::Kind::parameters, 2};
  SpoiledReader training("first.weight", options);
  training.net->words->options.sparse(false);
  const auto& skipped = training.optimizer.skipped();
  for (int step = 0; step < 6; ++step) {
    const bool bad = step == 2 || step == 3;
    training.step(step, bad);
    EXPECT_EQ(skipped.has_value(), bad && session->rank() == last_rank());
    if (skipped) {
      EXPECT_THAT(skipped->ranks(), testing::ElementsAre(session->rank()));
    }
  }
  for (const auto& parameter : training.net->parameters())
    EXPECT_TRUE(parameter.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace farandole
