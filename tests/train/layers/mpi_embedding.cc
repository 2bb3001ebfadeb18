#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

namespace farandole {
namespace {

using torch::Tensor;
using torch::nn::EmbeddingOptions;

Tensor random_indices(const std::vector<std::int64_t>& shape, std::int64_t rows, int seed) {
  torch::manual_seed(seed);
  return torch::randint(rows, shape, torch::kInt64);
}

// Trains one embedding; those of equal seeds have equal weights.
template <class Layer>
struct EmbeddingTrainer {
  explicit EmbeddingTrainer(const EmbeddingOptions& options, c10::ScalarType type = torch::kFloat32,
                            int passes = 1)
      : layer((torch::manual_seed(3), options)),
        sgd((layer->to(type), layer->parameters()), 0.1),
        optimizer(*session, sgd, layer->named_parameters(), {.backward_passes_per_step = passes}) {}
  // A loss whose gradients differ from row to row.
  Tensor loss(const Tensor& indices) { return layer(indices).square().mul(0.3).sum(); }

  Layer layer;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

using OwnEmbedding = EmbeddingTrainer<Embedding>;
using EmbeddingOfLibTorch = EmbeddingTrainer<torch::nn::Embedding>;

void expect_same_steps(const EmbeddingOptions& options, c10::ScalarType type, const Tensor& indices,
                       bool in_bucket = true) {
  OwnEmbedding ours(options, type);
  EmbeddingOfLibTorch theirs(options, type);
  for (int step = 0; step < 3; ++step) {
    step_of(ours.optimizer, ours.loss(indices));
    step_of(theirs.optimizer, theirs.loss(indices));
    EXPECT_TRUE(torch::equal(ours.layer->weight.grad(), theirs.layer->weight.grad()));
    EXPECT_TRUE(torch::equal(ours.layer->weight, theirs.layer->weight));
  }
  EXPECT_EQ(ours.optimizer.packed_bytes() == 0, in_bucket);
}

TEST(Embedding, AddsUpTheBitsOfLibTorchWhereTheyAreReduced) {
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16})
    for (const auto index : {torch::kInt64, torch::kInt32})
      for (const auto& shape : std::vector<std::vector<std::int64_t>>{{}, {9}, {3, 5}, {0}}) {
        const auto indices = random_indices(shape, 7, 1).to(index);
        expect_same_steps(EmbeddingOptions(7, 6), type, indices);
        expect_same_steps(EmbeddingOptions(7, 6).padding_idx(2), type, indices);
      }
  expect_same_steps(EmbeddingOptions(3000, 24), torch::kFloat32, random_indices({4, 2000}, 3000, 1));
}

TEST(Embedding, LeavesOtherOptionsToLibTorch) {
  const auto indices = random_indices({3, 5}, 7, 1);
  expect_same_steps(EmbeddingOptions(7, 6).scale_grad_by_freq(true), torch::kFloat32, indices, false);
  expect_same_steps(EmbeddingOptions(7, 6).max_norm(0.5), torch::kFloat32, indices, false);
}

TEST(Embedding, PaddingHasNoGradient) {
  OwnEmbedding ours(EmbeddingOptions(4, 2).padding_idx(-1));
  step_of(ours.optimizer,
          torch::log(ours.layer(torch::tensor({1, 3, 3}))).sum());  // log(0) has no finite one
  EXPECT_TRUE(torch::equal(ours.layer->weight.grad()[3], torch::zeros({2})));
  EXPECT_TRUE(torch::equal(ours.layer->weight[3], torch::zeros({2})));
  EXPECT_EQ(ours.optimizer.packed_bytes(), 0u);
}

TEST(Embedding, IsLeftOutOfStepsThatDoNotUseIt) {
  OwnEmbedding ours(EmbeddingOptions(7, 6));
  EmbeddingOfLibTorch theirs(EmbeddingOptions(7, 6));
  for (int step = 0; step < 4; ++step) {
    const auto indices = random_indices({3}, 7, step);
    const auto unused = torch::ones({2}).requires_grad_().sum();
    step_of(ours.optimizer, step % 2 == 0 ? ours.loss(indices) : unused);
    step_of(theirs.optimizer, step % 2 == 0 ? theirs.loss(indices) : unused);
    EXPECT_EQ(ours.layer->weight.grad().defined(), step % 2 == 0);
    EXPECT_TRUE(torch::equal(ours.layer->weight, theirs.layer->weight));
  }
}

TEST(Embedding, AddsUpOverUsesAndBackwardPasses) {
  OwnEmbedding ours(EmbeddingOptions(7, 6), torch::kFloat64, 2);
  EmbeddingOfLibTorch theirs(EmbeddingOptions(7, 6), torch::kFloat64, 2);
  for (int pass = 0; pass < 2; ++pass) {
    const auto some = random_indices({2, 3}, 7, pass), others = random_indices({8}, 7, 10 + pass);
    (ours.loss(some) + ours.loss(others)).backward();
    (theirs.loss(some) + theirs.loss(others)).backward();
  }
  ours.optimizer.synchronize();
  theirs.optimizer.synchronize();
  EXPECT_TRUE(torch::allclose(ours.layer->weight.grad(), theirs.layer->weight.grad()));
  EXPECT_EQ(ours.optimizer.packed_bytes(), 0u);
}

// Embeds indices and scores each row with the same weight; `kinds` says which of both, and in which order
// backward comes to them.
template <class Embed, class Score>
struct TiedNet {
  TiedNet()
      : score((torch::manual_seed(4), torch::nn::LinearOptions(6, 7).bias(false))),
        embed(EmbeddingOptions(7, 6).padding_idx(2)._weight(score->weight.detach())) {
    score->to(torch::kFloat64);
    embed->weight = score->weight;
  }
  Tensor loss(int kinds, int seed) {
    auto y = random({5, 6}, seed);
    if ((kinds & 1) != 0) y = y + torch::tanh(score(y)).matmul(random({7, 6}, seed + 1));
    if ((kinds & 2) != 0) y = y * embed(random_indices({5}, 7, seed));
    if ((kinds & 4) != 0) y = score(y);
    if ((kinds & 8) != 0) y = y.sum(1, true) + embed(random_indices({5}, 7, seed + 2));
    return y.square().sum();
  }
  Score score;
  Embed embed;
};

TEST(Embedding, AddsUpWithALinearThatSharesTheWeight) {
  for (int kinds = 1; kinds < 16; ++kinds) {
    TiedNet<Embedding, Linear> ours;
    TiedNet<torch::nn::Embedding, torch::nn::Linear> theirs;
    torch::optim::SGD sgd({ours.score->weight}, 0.01), plain({theirs.score->weight}, 0.01);
    DistributedOptimizer optimizer(*session, sgd, ours.score->named_parameters());
    for (int step = 0; step < 3; ++step) {
      step_of(optimizer, ours.loss(kinds, step));
      train_step(plain, [&] { return theirs.loss(kinds, step); });
      EXPECT_TRUE(torch::allclose(ours.score->weight.grad(), theirs.score->weight.grad())) << kinds;
    }
    EXPECT_TRUE(torch::allclose(ours.score->weight, theirs.score->weight)) << kinds;
    EXPECT_EQ(optimizer.packed_bytes(), 0u) << kinds;
  }
}

// As the documentation says.
TEST(Embedding, SharesTheWeightThatItIsMadeWith) {
  Linear score(torch::nn::LinearOptions(6, 7).bias(false));
  Embedding embed(EmbeddingOptions(7, 6)._weight(score->weight));
  EXPECT_TRUE(embed->weight.is_same(score->weight));
  EXPECT_TRUE(embed->parameters()[0].is_same(score->weight));
}

// LibTorch's embedding does not need the weight for backward.
TEST(Embedding, WeightMayChangeBeforeBackward) {
  OwnEmbedding ours(EmbeddingOptions(4, 2));
  const auto loss = ours.layer(torch::tensor({1, 2, 1})).sum();
  {
    const torch::NoGradGuard no_grad;
    ours.layer->weight.zero_();
  }
  step_of(ours.optimizer, loss);
  EXPECT_TRUE(torch::equal(ours.layer->weight.grad().sum(1), torch::tensor({0.F, 4.F, 2.F, 0.F})));
}

TEST(Embedding, SecondDerivatives) {
  OwnEmbedding ours(EmbeddingOptions(7, 6), torch::kFloat64);
  EmbeddingOfLibTorch theirs(EmbeddingOptions(7, 6), torch::kFloat64);
  const auto penalty = [](auto& layer) {
    const auto loss = torch::tanh(layer(random_indices({4}, 7, 1))).sum();
    return torch::autograd::grad({loss}, {layer->weight}, {}, true, true)[0].square().sum();
  };
  step_of(ours.optimizer, penalty(ours.layer));
  step_of(theirs.optimizer, penalty(theirs.layer));
  EXPECT_TRUE(torch::allclose(ours.layer->weight.grad(), theirs.layer->weight.grad()));
}

TEST(Embedding, IsClonedAsWhatItIs) {
  const torch::nn::Sequential net(Embedding(5, 3), Linear(3, 2));
  auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  ASSERT_NE(copy, nullptr);
  const auto indices = torch::tensor({4, 0, 4});
  EXPECT_TRUE(torch::equal(copy->forward(indices), torch::nn::Sequential(net)->forward(indices)));
  EXPECT_NE(copy->ptr(0)->as<Embedding>(), nullptr);
  EXPECT_FALSE(copy->parameters()[0].is_same(net->parameters()[0]));
}

}  // namespace
}  // namespace farandole
