#include "farandole/base/bucket_plan.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>

#include "lane.h"

namespace farandole {
namespace {

std::vector<TensorSpec> random_tensors(std::mt19937& random) {
  std::vector<TensorSpec> tensors(random() % 60);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].name = "t" + std::to_string(i);
    for (std::size_t d = random() % 4; d > 0; --d)
      tensors[i].shape.push_back(static_cast<std::int64_t>(random() % 40));
    tensors[i].dtype = random() % 4 == 0 ? DType::float64 : DType::float32;
  }
  return tensors;
}

TEST(BucketPlan, EveryTensorHasOnePlaceOfItsOwn) {
  std::mt19937 random(seed(1));
  for (int round = 0; round < 500; ++round) {
    const auto tensors = random_tensors(random);
    const BucketOptions options{1 + random() % 200'000, 1 + random() % 50'000};
    const auto plan = plan_buckets(tensors, options);
    std::set<std::size_t> seen;
    for (const auto& bucket : plan.buckets) {
      std::size_t end = 0;
      for (const auto& slot : bucket.slots) {
        EXPECT_TRUE(seen.insert(slot.tensor).second);
        EXPECT_EQ(tensors[slot.tensor].dtype, bucket.dtype);
        EXPECT_EQ(tensors[slot.tensor].count(), slot.count);
        EXPECT_GE(slot.offset, end);
        EXPECT_EQ(slot.offset * size_of(bucket.dtype) % 64, 0u);
        end = slot.offset + slot.count;
      }
      EXPECT_GE(bucket.payload, end);
      EXPECT_LT(bucket.payload * size_of(bucket.dtype), end * size_of(bucket.dtype) + 64);
      EXPECT_EQ(bucket.payload * size_of(bucket.dtype) % 64, 0u);
      EXPECT_EQ(bucket.count(), bucket.payload + bucket.slots.size() + 1);
    }
    EXPECT_EQ(seen.size(), tensors.size());
  }
}

TEST(BucketPlan, LastParametersComeFirst) {
  const auto plan = plan_buckets({{"first", {1000}}, {"second", {1000}}, {"third", {1000}}}, {4000, 4000});
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_EQ(plan.buckets.front().slots.front().tensor, 2u);
  EXPECT_EQ(plan.buckets.back().slots.front().tensor, 0u);
}

TEST(BucketPlan, FirstBucketIsSmallTheOthersFill) {
  const std::vector<TensorSpec> tensors(100, TensorSpec{"t", {1024}, DType::float32});
  const auto plan = plan_buckets(tensors, {16 * 4096, 4096});
  ASSERT_EQ(plan.buckets.size(), 1u + 7u);
  EXPECT_EQ(plan.buckets[0].slots.size(), 1u);
  EXPECT_EQ(plan.buckets[1].slots.size(), 16u);
}

TEST(BucketPlan, ScalarsAndNothing) {
  EXPECT_TRUE(plan_buckets({}, {}).buckets.empty());
  const auto plan = plan_buckets({{"scalar", {}}}, {});
  EXPECT_EQ(plan.buckets.at(0).payload, 16u);
}

TEST(TensorSpec, DescribesItself) {
  EXPECT_EQ((TensorSpec{"fc1.weight", {50, 320}, DType::float32}).describe(), "fc1.weight float32 [50, 320]");
}

TEST(BucketPlan, FollowsTheOrderInWhichGradientsCame) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 6; ++i) specs.push_back({"t" + std::to_string(i), {16}, DType::float32});
  const std::vector<std::size_t> order = {3, 1, 5, 0, 2, 4};
  const auto plan = plan_buckets(specs, {128, 64}, order);
  std::vector<std::size_t> planned;
  for (const auto& bucket : plan.buckets)
    for (const auto& slot : bucket.slots) planned.push_back(slot.tensor);
  EXPECT_EQ(planned, order);
  EXPECT_EQ(plan.buckets[0].slots.size(), 1u);
  EXPECT_EQ(plan.buckets[1].slots.size(), 2u);
}

}  // namespace
}  // namespace farandole
