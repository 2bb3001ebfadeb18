#include <algorithm>
#include <gmock/gmock.h>
#include <random>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "lane.h"
#include "train/mpi_session.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

using testing::HasSubstr;

std::string refusal(std::vector<int> ranks) {
  try {
    session->new_group(ranks);
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

TEST(Group, CollectivesAmongRandomSubsets) {
  std::mt19937 random(seed(11));  // the same on all ranks
  for (int round = 0; round < 20; ++round) {
    std::vector<int> ranks;
    for (int r = 0; r < session->size(); ++r)
      if (random() % 3 != 0) ranks.push_back(r);
    if (ranks.empty()) ranks.push_back(0);
    std::shuffle(ranks.begin(), ranks.end(), random);
    const auto group = session->new_group(ranks);
    const auto own = std::find(ranks.begin(), ranks.end(), session->rank());
    ASSERT_EQ(group != nullptr, own != ranks.end());
    if (group == nullptr) continue;
    EXPECT_EQ(group->rank(), own - ranks.begin());
    EXPECT_EQ(group->size(), static_cast<int>(ranks.size()));
    EXPECT_EQ(group->ranks(), ranks);
    const auto gathered = group->all_gather(torch::tensor({session->rank()}));
    EXPECT_TRUE(torch::equal(gathered, torch::tensor(ranks, torch::kLong)));
    EXPECT_EQ(group->allreduce(torch::tensor({1.0f}), ReduceOp::sum).item<float>(), group->size());
    auto last = torch::tensor({session->rank()});
    group->broadcast_(last, group->size() - 1);
    EXPECT_EQ(last.item<int>(), ranks.back());
    group->barrier();
  }
}

TEST(Group, ManyAtOnceAndTheSessionMeanwhile) {
  std::vector<std::unique_ptr<Group>> pairs;
  for (int first = 0; first + 1 < session->size(); ++first)
    pairs.push_back(session->new_group({first, first + 1}));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      ASSERT_EQ(pairs[i] != nullptr,
                session->rank() == static_cast<int>(i) || session->rank() == static_cast<int>(i) + 1);
      if (pairs[i] == nullptr) continue;
      const auto sum = pairs[i]->allreduce(torch::tensor({session->rank()}), ReduceOp::sum);
      EXPECT_EQ(sum.item<int>(), 2 * static_cast<int>(i) + 1);
    }
    session->barrier();
  }
}

TEST(Group, RefusesListsThatAreNoneOnAllRanks) {
  const int size = session->size();
  EXPECT_THAT(refusal({}), HasSubstr("no ranks"));
  EXPECT_THAT(refusal({0, 0}), HasSubstr("rank 0 twice"));
  EXPECT_THAT(refusal({0, size}), HasSubstr("rank " + std::to_string(size)));
  EXPECT_THAT(refusal({-1, 0}), HasSubstr("rank -1"));
  session->barrier();
}

TEST(Group, RefusesDifferentListsOnAllRanks) {
  if (session->size() == 1) GTEST_SKIP() << "needs two ranks";
  const auto told = refusal(session->rank() == 1 ? std::vector{1, 0} : std::vector{0, 1});
  EXPECT_THAT(told, HasSubstr("rank 1             group of ranks [1, 0]"));
  EXPECT_THAT(told, HasSubstr("group of ranks [0, 1]"));
  EXPECT_THAT(refusal(session->rank() == 1 ? std::vector<int>{} : std::vector{0}), HasSubstr("ranks []"));
  session->barrier();
}

// Each half trains a model of its own.
TEST(Group, OptimizersOfGroups) {
  const int half = session->size() / 2;
  std::vector<int> halves[2];
  for (int r = 0; r < session->size(); ++r) halves[r < half ? 0 : 1].push_back(r);
  std::unique_ptr<Group> own;
  for (const auto& ranks : halves)
    if (!ranks.empty())
      if (auto group = session->new_group(ranks); group != nullptr) own = std::move(group);
  ASSERT_NE(own, nullptr);
  torch::manual_seed(5);
  torch::nn::Linear linear(3, 2);
  torch::optim::SGD sgd(linear->parameters(), 0.1);
  for (int round = 0; round < 10; ++round) {  // more optimizers than a group has numbers
    DistributedOptimizer optimizer(*session, sgd, linear->named_parameters(), {.group = own.get()});
    optimizer.zero_grad();
    (linear->forward(torch::ones({1, 3})).sum() * (session->rank() + 1)).backward();
    optimizer.synchronize();
    double mean = 0;
    for (const int r : own->ranks()) mean += (r + 1.0) / own->size();
    EXPECT_NEAR(linear->bias.grad()[0].item<double>(), mean, 1e-6);
    optimizer.step();
  }
}

}  // namespace
}  // namespace farandole
