#include <gtest/gtest.h>
#include <random>

#include "lane.h"

#include "farandole/comm/hierarchical/hierarchical_communicator.h"

namespace farandole {
namespace {

TEST(LeaderPlan, UnevenNodes) {
  const std::vector<int> nodes = {4, 4, 9, 9, 1};
  EXPECT_EQ(LeaderPlan(nodes).leader_groups, 1);
  EXPECT_EQ(LeaderPlan(std::vector<int>{0, 0, 0, 1}).leader_groups, 3);
  EXPECT_EQ(LeaderPlan(std::vector<int>{0, 0, 0, 1, 1}).leader_groups, 2);
  const LeaderPlan plan(nodes, 5);
  EXPECT_EQ(plan.leader_groups, 2);
  EXPECT_EQ(plan.members, (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(plan.server(0, 1), 1);
  EXPECT_EQ(plan.server(2, 1), 0);
}

TEST(LeaderPlan, CyclicRanks) {
  const std::vector<int> nodes = {0, 1, 0, 1};
  const LeaderPlan plan(nodes);
  EXPECT_EQ(plan.members, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(plan.local, (std::vector<int>{0, 0, 1, 1}));
}

TEST(LeaderPlan, HoldsWhatTheCommunicatorCountsOn) {
  std::mt19937 random(seed(3));
  for (int round = 0; round < 500; ++round) {
    std::vector<int> nodes(1 + random() % 20);
    for (auto& node : nodes) node = static_cast<int>(random() % 5);
    const LeaderPlan plan(nodes, static_cast<int>(random() % 9));
    EXPECT_GE(plan.leader_groups, 1);
    for (std::size_t r = 0; r < nodes.size(); ++r)
      EXPECT_EQ(plan.members[static_cast<std::size_t>(plan.node[r])][static_cast<std::size_t>(plan.local[r])],
                static_cast<int>(r));
    for (int n = 0; n < plan.node_count(); ++n) {
      EXPECT_EQ(plan.server(n, 0), 0);
      for (int k = 0; k < plan.leader_groups; ++k) {
        EXPECT_LT(plan.server(n, k), plan.local_size(n));
        if (k > 0) {
          EXPECT_GE(plan.server(n, k), plan.server(n, k - 1));
        }
      }
    }
  }
}

}  // namespace
}  // namespace farandole
