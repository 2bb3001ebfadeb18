// Compares ranks with different numbers of batches with one process that knows which
// ranks still have batches.
#include <algorithm>
#include <gmock/gmock.h>
#include <numeric>
#include <random>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

using torch::Tensor;

constexpr std::int64_t batch_rows = 4, inputs = 6;

struct Uneven {
  std::vector<int> steps;  // by rank

  explicit Uneven(unsigned seed, unsigned most = 9) {
    std::mt19937 random(seed);  // the same on all ranks
    for (int r = 0; r < session->size(); ++r) steps.push_back(static_cast<int>(random() % (most + 1)));
  }
  int own() const { return steps[static_cast<std::size_t>(session->rank())]; }
  int longest() const { return *std::max_element(steps.begin(), steps.end()); }
  std::vector<int> active(int step) const {
    std::vector<int> ranks;
    for (int r = 0; r < session->size(); ++r)
      if (steps[static_cast<std::size_t>(r)] > step) ranks.push_back(r);
    return ranks;
  }
};

Tensor batch_of(int step, int rank) {
  torch::manual_seed(100 * step + rank);
  return torch::randn({batch_rows, inputs}, torch::kFloat64);
}

std::shared_ptr<torch::nn::SequentialImpl> some_layers() {
  torch::manual_seed(21);
  auto net = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(inputs, 8), torch::nn::Tanh(),
                                                         torch::nn::Linear(8, 2));
  net->to(torch::kFloat64);
  return net;
}

Tensor loss_on(torch::nn::SequentialImpl& net, const Tensor& x) {
  return (net.forward(x) - 0.4).pow(2).mean();
}

void set_rate(torch::optim::Optimizer& optimizer, int step) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(0.02 + 0.01 * step);
}

void expect_trained_alike(const torch::nn::Module& net, const torch::nn::Module& reference) {
  expect_same(net.named_parameters(), reference.named_parameters(), 1e-9, 1e-11);
  expect_equal_on_all_ranks(net.named_parameters());
}

// The sum of the losses of the ranks that still have batches.
Tensor loss_of_active(torch::nn::SequentialImpl& net, const std::vector<int>& active, int step) {
  auto loss = torch::zeros({}, torch::kFloat64);
  for (const int r : active) loss = loss + loss_on(net, batch_of(step, r));
  return loss;
}

std::unique_ptr<torch::optim::Optimizer> make_inner(int kind, const std::vector<Tensor>& parameters) {
  using namespace torch::optim;
  if (kind == 0) return std::make_unique<SGD>(parameters, SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
  if (kind == 1) return std::make_unique<AdamW>(parameters, AdamWOptions(0.01).weight_decay(0.1));
  return std::make_unique<RMSprop>(parameters, RMSpropOptions(0.01));
}

TEST(Join, TrainsOnWhatTheActiveRanksHave) {
  for (unsigned round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    const bool by_all = round % 4 == 3;
    DistributedOptimizerOptions options{.buckets = {200, 100}};
    options.average = round % 5 != 4;
    if (round % 3 == 1) options.clip_norm = 0.2;
    const auto net = some_layers(), alone = some_layers();
    const auto inner = make_inner(static_cast<int>(round % 3), net->parameters());
    const auto reference = make_inner(static_cast<int>(round % 3), alone->parameters());
    DistributedOptimizer optimizer(*session, *inner, net->named_parameters(), options);
    for (unsigned epoch = 0; epoch < 3; ++epoch) {
      const Uneven uneven(10 * round + epoch);
      {
        Join join(*session, {&optimizer}, {}, {.divide_by_all = by_all});
        for (int step = 0; step < uneven.own(); ++step) {
          set_rate(*inner, step);
          if (step % 2 == 0) optimizer.zero_grad();
          loss_on(*net, batch_of(step, session->rank())).backward();
          if (step % 3 == 0) optimizer.synchronize();
          optimizer.step();
          if (step % 2 == 0) optimizer.zero_grad();
          if (step % 2 != 0) inner->zero_grad();
        }
        const int last = join.finish();
        EXPECT_EQ(uneven.steps[static_cast<std::size_t>(last)], uneven.longest());
      }
      for (int step = 0; step < uneven.longest(); ++step) {
        const auto active = uneven.active(step);
        set_rate(*reference, step);
        reference->zero_grad();
        const auto loss = loss_of_active(*alone, active, step);
        const int divisor = by_all ? session->size() : static_cast<int>(active.size());
        (options.average ? loss / divisor : loss).backward();
        if (options.clip_norm) torch::nn::utils::clip_grad_norm_(alone->parameters(), *options.clip_norm);
        reference->step();
      }
      expect_trained_alike(*net, *alone);
    }
  }
}

// For example after an overflow: all active ranks discard their gradients before or after the reduction.
TEST(Join, SkippedSteps) {
  const auto net = some_layers(), alone = some_layers();
  torch::optim::SGD sgd(net->parameters(), 0.1), reference(alone->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters());
  const Uneven uneven(77);
  Join join(*session, {&optimizer});
  for (int step = 0; step < uneven.own(); ++step) {
    optimizer.zero_grad();
    loss_on(*net, batch_of(step, session->rank())).backward();
    if (step % 3 == 1) optimizer.synchronize();
    if (step % 3 == 2) optimizer.step();
  }
  optimizer.zero_grad();
  join.finish();
  for (int step = 2; step < uneven.longest(); step += 3) {
    const auto active = uneven.active(step);
    train_step(reference,
               [&] { return loss_of_active(*alone, active, step) / static_cast<double>(active.size()); });
  }
  expect_trained_alike(*net, *alone);
}

TEST(Join, CoversTheSessionsCollectives) {
  for (unsigned round = 0; round < 6; ++round) {
    const Uneven uneven(300 + round, 12);
    const int rank = session->rank();
    Join join(*session);
    for (int step = 0; step < uneven.own(); ++step) {
      const auto active = uneven.active(step);
      const auto count = static_cast<std::int64_t>(active.size());
      const double sum = std::accumulate(active.begin(), active.end(), 0.0);
      const auto own = torch::full({3}, rank, torch::kFloat64);
      EXPECT_NEAR(session->allreduce(own)[0].item<double>(), sum / static_cast<double>(count), 1e-12);
      EXPECT_EQ(session->allreduce(own, ReduceOp::max)[2].item<double>(), active.back());
      const auto both =
          session->allreduce(std::vector{own, torch::tensor({rank}, torch::kInt64)}, ReduceOp::sum);
      EXPECT_EQ(both[0][1].item<double>(), sum);
      EXPECT_EQ(both[1].item<double>(), sum);
      const auto gathered = session->all_gather(torch::full({rank + 1, 2}, rank));
      std::vector<Tensor> expected;
      for (const int r : active) expected.push_back(torch::full({r + 1, 2}, r));
      EXPECT_TRUE(torch::equal(gathered, torch::cat(expected)));
      auto news = torch::tensor({rank});
      session->broadcast_(news, active.front());
      EXPECT_EQ(news.item<int>(), active.front());
      const auto rows = session->reduce_scatter(torch::ones({2 * session->size(), 2}));
      EXPECT_TRUE(torch::equal(rows, torch::full({2, 2}, static_cast<float>(count))));
      const auto arrived = session->all_to_all(torch::full({session->size(), 1}, rank));
      EXPECT_TRUE(torch::equal(arrived.view(-1), torch::tensor(active, torch::kFloat)));
      std::string text = rank == active.front() ? "hello" : "";
      session->broadcast(text, active.front());
      EXPECT_EQ(text, "hello");
      session->together([] {});
      session->barrier();
    }
  }
}

TEST(Join, CoversGroupsAndBatchNormAndSparseGradients) {
  std::vector<int> evens;
  for (int r = 0; r < session->size(); r += 2) evens.push_back(r);
  const auto group = session->new_group(evens);
  for (unsigned round = 0; round < 4; ++round) {
    const Uneven uneven(500 + round);
    torch::manual_seed(8);
    torch::nn::Embedding words(torch::nn::EmbeddingOptions(20, 5).sparse(true));
    SyncBatchNorm norm(*session, torch::nn::BatchNormOptions(5));
    torch::nn::Embedding all_words(torch::nn::EmbeddingOptions(20, 5));
    torch::nn::BatchNorm1d whole(torch::nn::BatchNormOptions(5));
    for (torch::nn::Module* each :
         std::vector<torch::nn::Module*>{words.get(), norm.get(), all_words.get(), whole.get()})
      each->to(torch::kFloat64);
    session->broadcast(*words);
    {
      const torch::NoGradGuard no_grad;
      all_words->weight.copy_(words->weight);
    }
    torch::OrderedDict<std::string, Tensor> parameters;
    parameters.insert("words", words->weight);
    for (const auto& item : norm->named_parameters()) parameters.insert(item.key(), item.value());
    torch::optim::SGD sgd(parameters.values(), 0.01);
    auto reference_parameters = all_words->parameters();
    for (const auto& tensor : whole->parameters()) reference_parameters.push_back(tensor);
    torch::optim::SGD reference(reference_parameters, 0.01);
    DistributedOptimizer optimizer(*session, sgd, parameters,
                                   {.average = false, .sparse_parameters = {"words"}});
    const auto rows_at = [](int step, int rank) {
      torch::manual_seed(70 * step + rank);
      return torch::randint(20, {rank + 12}, torch::kInt64);
    };
    const auto weights_at = [](int step, int rank) {
      torch::manual_seed(90 * step + rank);
      return torch::randn({rank + 12, 5}, torch::kFloat64);
    };
    Join join(*session, {&optimizer}, {group.get()});
    for (int step = 0; step < uneven.own(); ++step) {
      optimizer.zero_grad();
      const auto y = norm(words(rows_at(step, session->rank())));
      (y * weights_at(step, session->rank())).sum().backward();
      if (group != nullptr) {
        int expected = 0;
        for (const int r : uneven.active(step)) expected += r % 2 == 0 ? 1 : 0;
        EXPECT_EQ(group->allreduce(torch::ones({1}), ReduceOp::sum).item<int>(), expected);
      }
      optimizer.step();
    }
    session->broadcast(*norm, join.finish());
    for (int step = 0; step < uneven.longest(); ++step) {
      std::vector<Tensor> rows, weights;
      for (const int r : uneven.active(step)) {
        rows.push_back(rows_at(step, r));
        weights.push_back(weights_at(step, r));
      }
      train_step(reference, [&] { return (whole(all_words(torch::cat(rows))) * torch::cat(weights)).sum(); });
    }
    EXPECT_LT((words->weight - all_words->weight).abs().max().item<double>(), 1e-9);
    EXPECT_LT((norm->weight - whole->weight).abs().max().item<double>(), 1e-9);
    EXPECT_LT((norm->running_var - whole->running_var).abs().max().item<double>(), 1e-9);
    EXPECT_TRUE(torch::equal(norm->num_batches_tracked, whole->num_batches_tracked));
    expect_equal_on_all_ranks(words->named_parameters());
  }
}

// Each rank steps alone. At the end all ranks must have the same parameters and continue together.
TEST(Join, AveragedParameters) {
  for (unsigned round = 0; round < 4; ++round) {
    const auto net = some_layers();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DistributedOptimizer optimizer(*session, sgd, net->named_parameters(),
                                   {.synchronization = parse_synchronization("parameters:3")});
    for (unsigned epoch = 0; epoch < 3; ++epoch) {
      const Uneven uneven(700 + 10 * round + epoch);
      Join join(*session, {&optimizer});
      for (int step = 0; step < uneven.own(); ++step) {
        train_step(optimizer, [&] { return loss_on(*net, batch_of(step, session->rank())); });
      }
      join.finish();
      expect_equal_on_all_ranks(net->named_parameters());
    }
  }
}

TEST(Join, TwoOptimizersThatTakeTurns) {
  const auto one = some_layers(), other = some_layers();
  torch::optim::SGD sgd(one->parameters(), 0.1), adam(other->parameters(), 0.05);
  DistributedOptimizer first(*session, sgd, one->named_parameters()),
      second(*session, adam, other->named_parameters());
  const Uneven uneven(900, 20);
  Join join(*session, {&first, &second});
  for (int step = 0; step < uneven.own(); ++step) {
    auto& optimizer = step % 3 == 0 ? second : first;
    train_step(optimizer,
               [&] { return loss_on(step % 3 == 0 ? *other : *one, batch_of(step, session->rank())); });
  }
  join.finish();
  expect_equal_on_all_ranks(one->named_parameters());
  expect_equal_on_all_ranks(other->named_parameters());
}

TEST(Join, RefusesWhatRanksWithoutBatchesCannotJoinIn) {
  const auto net = some_layers();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters());
  Join join(*session, {&optimizer});
  EXPECT_THROW(session->new_group({0}), UserError);
  EXPECT_THROW(DistributedOptimizer(*session, sgd, net->named_parameters()), UserError);
  EXPECT_THROW(optimizer.step([] { return torch::zeros({}); }), UserError);
}

}  // namespace
}  // namespace farandole
