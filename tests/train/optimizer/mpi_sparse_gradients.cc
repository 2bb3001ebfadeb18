// Compares sparse gradients with the dense ones of one process that has the rows of all ranks.
#include <gmock/gmock.h>
#include <random>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

using torch::Tensor;

constexpr std::int64_t table = 60, width = 7;

struct Words : torch::nn::Module {
  explicit Words(bool sparse) {
    using torch::nn::Embedding, torch::nn::EmbeddingOptions;
    words = register_module("words", Embedding(EmbeddingOptions(table, width).sparse(sparse)));
    others = register_module("others", Embedding(EmbeddingOptions(table / 2, width).sparse(sparse)));
    out = register_module("out", torch::nn::Linear(width, 2));
    to(torch::kFloat64);
  }
  // `rows` may be empty; `others` has no gradient if there are no other rows.
  Tensor loss(const Tensor& rows, const Tensor& other_rows) {
    auto sum = out(words(rows)).tanh().sum() + out->bias.pow(2).sum();
    if (other_rows.numel() > 0) sum = sum + out(others(other_rows)).pow(2).sum();
    return sum;
  }
  torch::nn::Embedding words{nullptr}, others{nullptr};
  torch::nn::Linear out{nullptr};
};

std::shared_ptr<Words> same_words(bool sparse) {
  torch::manual_seed(3);
  return std::make_shared<Words>(sparse);
}

// Rank 1 of several never has a word; the words of the others change in each step; in every third step
// no rank has others.
Tensor rows_of(int step, int rank) {
  torch::manual_seed(1000 * step + rank);
  const std::int64_t count = rank == 1 ? 0 : torch::randint(40, {1}).item<std::int64_t>();
  return torch::randint(table, {count}, torch::kInt64);
}
Tensor other_rows_of(int step, int rank) {
  torch::manual_seed(2000 * step + rank);
  const bool some = step % 3 != 2 && (rank + step) % 2 == 0;
  return torch::randint(table / 2, {some ? 5 : 0}, torch::kInt64);
}

using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)>;

std::vector<std::pair<std::string, Make>> optimizers_of_rows() {
  using namespace torch::optim;
  return {{"SGD", [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.05)); }},
          {"momentum", [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.05).momentum(0.9)); }},
          {"Adagrad", [](auto p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.05)); }}};
}

void expect_same_words(const torch::nn::Module& own, const torch::nn::Module& reference) {
  expect_same(own.named_parameters(), reference.named_parameters(), 1e-9, 1e-11);
  expect_equal_on_all_ranks(own.named_parameters());
}

void train_words(const Make& make, DistributedOptimizerOptions options) {
  const auto own = same_words(true), alone = same_words(false);
  options.sparse_parameters = sparse_parameters(*own);
  ASSERT_THAT(options.sparse_parameters, testing::ElementsAre("words.weight", "others.weight"));
  const auto inner = make(own->parameters()), reference = make(alone->parameters());
  DistributedOptimizer optimizer(*session, *inner, own->named_parameters(), options);
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    own->loss(rows_of(step, session->rank()), other_rows_of(step, session->rank())).backward();
    if (step % 2 == 1) {
      optimizer.synchronize();
      ASSERT_TRUE(own->words->weight.grad().is_sparse());
      EXPECT_TRUE(own->words->weight.grad().is_coalesced());
      bool any = false;
      for (int r = 0; r < session->size(); ++r) any = any || other_rows_of(step, r).numel() > 0;
      EXPECT_EQ(own->others->weight.grad().defined(), any);
    }
    optimizer.step();
    reference->zero_grad();
    auto loss = torch::zeros({}, torch::kFloat64);
    for (int r = 0; r < session->size(); ++r)
      loss = loss + alone->loss(rows_of(step, r), other_rows_of(step, r));
    (options.average ? loss / session->size() : loss).backward();
    if (options.clip_norm) {
      const double norm = torch::nn::utils::clip_grad_norm_(alone->parameters(), *options.clip_norm);
      EXPECT_NEAR(optimizer.gradient_norm(), norm, 1e-9);
    }
    reference->step();
  }
  expect_same_words(*own, *alone);
}

TEST(SparseGradients, EqualOneProcess) {
  for (const auto& [name, make] : optimizers_of_rows()) {
    SCOPED_TRACE(name);
    train_words(make, {});
    train_words(make, {.average = false});
    train_words(make, {.clip_norm = 0.3});
  }
}

TEST(SparseGradients, SendRowsAndNotTheTable) {
  torch::nn::Embedding words(torch::nn::EmbeddingOptions(1000, 16).sparse(true));
  session->broadcast(*words);
  const auto before = words->weight.detach().clone();
  torch::optim::SGD sgd(words->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, words->named_parameters(),
                                 {.clip_norm = 1e9, .sparse_parameters = {"weight"}});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    words(torch::tensor({5, 9, 5})).sum().backward();  // two rows
    optimizer.step();
  }
  EXPECT_EQ(optimizer.gradient_bytes(), 0u);
  EXPECT_NEAR(optimizer.gradient_norm(), std::sqrt(16 * (2 * 2 + 1)), 1e-5);
  EXPECT_EQ(optimizer.sent_bytes(), 2 * (16u + (2 * (8 + 16 * 4) + 63) / 64 * 64));
  const auto moved = (before - words->weight).sum(1);
  EXPECT_NEAR(moved[5].item<double>(), 2 * 16 * 0.2, 1e-4);
  EXPECT_NEAR(moved[9].item<double>(), 2 * 16 * 0.1, 1e-4);
  EXPECT_EQ(moved.count_nonzero().item<int>(), 2);
}

// Otherwise the last bucket of dense gradients carries the request.
TEST(SparseGradients, AlonePassOnTheRequestToStop) {
  for (const bool asks : {false, true}) {
    auto words = torch::nn::Embedding(torch::nn::EmbeddingOptions(table, width).sparse(true));
    torch::optim::SGD sgd(words->parameters(), 0.1);
    DistributedOptimizerOptions options;
    options.sparse_parameters = {"weight"};
    options.stop_requested = [&] { return asks && session->rank() == session->size() - 1; };
    DistributedOptimizer optimizer(*session, sgd, words->named_parameters(), options);
    train_step(optimizer, [&] { return words(torch::arange(5, torch::kInt64)).sum(); });
    EXPECT_EQ(optimizer.stopping(), asks);
  }
}

// As in models in which the embedding is also the weight of the output layer.
TEST(SparseGradients, ThatComeDense) {
  const auto own = same_words(true), alone = same_words(false);
  torch::optim::SGD sgd(own->parameters(), 0.1), reference(alone->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, own->named_parameters(),
                                 {.sparse_parameters = sparse_parameters(*own)});
  const auto loss = [](Words& net, int rank) {
    return net.loss(rows_of(1, rank), other_rows_of(0, rank)) + net.words->weight.slice(0, 3, 9).pow(2).sum();
  };
  loss(*own, session->rank()).backward();
  optimizer.step();
  auto sum = torch::zeros({}, torch::kFloat64);
  for (int r = 0; r < session->size(); ++r) sum = sum + loss(*alone, r);
  (sum / session->size()).backward();
  reference.step();
  expect_same_words(*own, *alone);
}

TEST(SparseGradients, RefusesWhatCannotBe) {
  const auto own = same_words(true);
  torch::optim::SGD sgd(own->parameters(), 0.1);
  torch::optim::Adam adam(own->parameters());
  const auto make = [&](torch::optim::Optimizer& inner, std::vector<std::string> names) {
    DistributedOptimizer(*session, inner, own->named_parameters(), {.sparse_parameters = std::move(names)});
  };
  EXPECT_THROW(make(sgd, {"nobody.weight"}), UserError);
  EXPECT_THROW(make(adam, {"words.weight"}), UserError);
  if (session->size() == 1) return;
  const std::string other = session->rank() == 1 ? "others.weight" : "words.weight";
  EXPECT_THROW(make(sgd, {other}), UserError);
}

}  // namespace
}  // namespace farandole
