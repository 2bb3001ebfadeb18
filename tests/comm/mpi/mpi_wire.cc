// Sums whose values are rounded to bfloat16 on their way between nodes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "comm/communicator_ways.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/comm/kernels/float16.h"

namespace farandole {
namespace {

class WireTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (world->layout().size < 2) GTEST_SKIP() << "one rank sends nothing";
    auto way = GetParam();
    way.options.hierarchy.wire = Wire::bfloat16;
    comm_ = way.make();
  }

  int nodes() const {
    std::vector<int> different;
    for (int r = 0; r < comm_->size; ++r) different.push_back(GetParam().node_of(r));
    std::sort(different.begin(), different.end());
    return static_cast<int>(std::unique(different.begin(), different.end()) - different.begin());
  }

  void expect_same_bits(const std::vector<float>& values) const {
    auto of_root = values;
    comm_->broadcast("values of rank 0", of_root.data(), of_root.size() * sizeof(float), 0);
    EXPECT_EQ(std::memcmp(of_root.data(), values.data(), values.size() * sizeof(float)), 0);
  }

  std::unique_ptr<Communicator> comm_;
};

// The values of this rank, their sums over all ranks, and the sums of their magnitudes.
struct RandomValues {
  std::vector<float> own;
  std::vector<double> exact, magnitude;
};

RandomValues random_values(std::size_t count) {
  std::mt19937 random(seed(5));  // equal on all ranks
  RandomValues all{std::vector<float>(count), std::vector<double>(count), std::vector<double>(count)};
  for (int r = 0; r < world->layout().size; ++r)
    for (std::size_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(random() % 20'001) / 10'000 - 1;
      if (r == world->layout().rank) all.own[i] = value;
      all.exact[i] += value;
      all.magnitude[i] += std::abs(value);
    }
  return all;
}

// Each node rounds what it sends, so the error is at most half a unit of bfloat16 for each node on the way.
TEST_P(WireTest, SumsAreEqualOnAllRanksAndNearTheExactOnes) {
  static const auto short_ones = random_values(20'000), long_ones = random_values(70'003);
  for (const auto* const numbers : {&short_ones, &long_ones})
    for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
      auto [values, exact, magnitude] = *numbers;
      const std::size_t count = values.size();
      comm_->allreduce("test", values.data(), count, DType::float32, op);
      expect_same_bits(values);
      const double scaling = op == ReduceOp::average ? comm_->size : 1;
      const double share = (nodes() + 1) / scaling / 256;
      std::size_t wrong = 0;
      while (wrong < count && std::abs(values[wrong] - exact[wrong] / scaling) <= share * magnitude[wrong])
        ++wrong;
      ASSERT_EQ(wrong, count);
    }
}

TEST_P(WireTest, NaNsAndInfinitiesArrive) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(50'000, 1);
  if (comm_->rank == comm_->size - 1) {
    values[7] = std::nanf("");
    values[8] = infinity;
    values[9] = -infinity;
    values[49'999] = std::nanf("");
  }
  comm_->allreduce("test", values.data(), values.size(), DType::float32, ReduceOp::average);
  EXPECT_TRUE(std::isnan(values[7]) && std::isnan(values[49'999]));
  EXPECT_EQ(values[8], infinity);
  EXPECT_EQ(values[9], -infinity);
  EXPECT_EQ(values[10], 1);
}

// What is not a sum of float32, or is short, travels as it is.
TEST_P(WireTest, OtherValuesAreExact) {
  const double fine = 1 + 1.0 / 4096;  // has no place in bfloat16
  for (const std::size_t count : {3u, 50'000u}) {
    std::vector<double> doubles(count, fine);
    comm_->allreduce("test", doubles.data(), count, DType::float64, ReduceOp::sum);
    EXPECT_EQ(doubles, std::vector<double>(count, fine * comm_->size));
    std::vector<float> largest(count, static_cast<float>(fine));
    comm_->allreduce("test", largest.data(), count, DType::float32, ReduceOp::max);
    EXPECT_EQ(largest, std::vector<float>(count, static_cast<float>(fine)));
  }
  std::vector<float> few(3, static_cast<float>(fine));
  comm_->allreduce("test", few.data(), few.size(), DType::float32, ReduceOp::sum);
  EXPECT_EQ(few, std::vector<float>(3, static_cast<float>(fine * comm_->size)));
}

// The values of one node are added before they are rounded: 1 + 1/512 alone would become 1.
TEST_P(WireTest, RanksOfANodeAddWithFullPrecision) {
  const int node = GetParam().node_of(0);
  float sum = 0, own = 0;
  for (int r = 0; r < comm_->size; ++r) {
    if (GetParam().node_of(r) != node) continue;
    const float value = r == 0 ? 1 + 1.0f / 512 : 3.0f / 1024;
    sum += value;
    if (r == comm_->rank) own = value;
  }
  std::vector<float> values(50'000, own);
  comm_->allreduce("test", values.data(), values.size(), DType::float32, ReduceOp::sum);
  BFloat16 rounded{};
  from_float(sum, rounded);
  EXPECT_EQ(values, std::vector<float>(50'000, nodes() == 1 ? sum : to_float(rounded)));
}

TEST_P(WireTest, RanksThatRoundAreToldOfTheOthers) {
  if (nodes() == 1) GTEST_SKIP() << "one node sends nothing";
  auto way = GetParam();
  if (comm_->rank == 0) way.options.hierarchy.wire = Wire::bfloat16;
  const auto comm = way.make();
  std::vector<float> values(50'000);
  EXPECT_THROW(comm->allreduce("test", values.data(), values.size(), DType::float32, ReduceOp::sum),
               UserError);
}

std::vector<Way> ways_of_nodes() {
  auto all = ways();
  std::erase_if(
      all, [](const Way& way) { return way.node_of == nullptr || way.options.transport == Transport::mpi; });
  return all;
}

// With few ranks, some ways have only one node: nothing travels, and nothing is rounded.
INSTANTIATE_TEST_SUITE_P(Way, WireTest, testing::ValuesIn(ways_of_nodes()),
                         [](const auto& parameter) { return parameter.param.name; });

TEST(Wire, CollectivesOfMpiRefuseToRound) {
  if (world->layout().size < 2) GTEST_SKIP() << "one rank sends nothing";
  Way way{"Mpi", Waiting::spin, [](int rank) { return rank; }, {Transport::mpi}};
  way.options.hierarchy.wire = Wire::bfloat16;
  EXPECT_THROW(way.make(), UserError);
}

}  // namespace
}  // namespace farandole
