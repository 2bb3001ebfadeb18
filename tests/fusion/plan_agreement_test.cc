#include "farandole/fusion/plan_agreement.h"

#include <gtest/gtest.h>

#include "fusion/thread_world.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

std::string disagreement(int ranks, const std::function<std::vector<TensorSpec>(int)>& tensors) {
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  ThreadWorld::run(ranks, [&](Communicator& communicator) {
    try {
      check_plan_agreement(communicator, plan_buckets(tensors(communicator.rank), {}));
    } catch (const UserError& error) {
      messages[static_cast<std::size_t>(communicator.rank)] = error.what();
    }
  });
  for (const auto& message : messages) EXPECT_EQ(message, messages[0]);
  return messages[0];
}

TEST(PlanAgreement, EqualPlansPass) {
  EXPECT_EQ(disagreement(4, [](int) { return std::vector<TensorSpec>{{"w", {3, 4}}, {"b", {3}}}; }), "");
}

TEST(PlanAgreement, ADifferentShapeIsNamedWithItsRanks) {
  const auto message = disagreement(3, [](int rank) {
    return std::vector<TensorSpec>{{"w", {3, rank == 1 ? 5 : 4}}, {"b", {3}}};
  });
  EXPECT_NE(message.find("w float32 [3, 5]"), std::string::npos) << message;
  EXPECT_NE(message.find("ranks 0, 2"), std::string::npos) << message;
  EXPECT_EQ(message.find("b float32"), std::string::npos) << message;
}

TEST(PlanAgreement, AMissingTensorIsNamed) {
  const auto message = disagreement(2, [](int rank) {
    std::vector<TensorSpec> tensors{{"w", {3}}};
    if (rank == 0) tensors.push_back({"only on rank 0", {2}});
    return tensors;
  });
  EXPECT_NE(message.find("only on rank 0"), std::string::npos) << message;
}

}  // namespace
}  // namespace farandole
