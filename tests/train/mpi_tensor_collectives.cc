#include <gtest/gtest.h>
#include <numeric>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

double sum_of_ranks() {
  return session->size() * (session->size() + 1) / 2.0;
}

TEST(TensorCollectives, AllreduceOfStridedScalarAndEmptyTensors) {
  auto matrix = torch::arange(12, torch::kFloat64).reshape({3, 4}).t() * (session->rank() + 1);
  ASSERT_FALSE(matrix.is_contiguous());
  const auto sum = session->allreduce(matrix, ReduceOp::sum);
  EXPECT_TRUE(torch::allclose(sum, torch::arange(12, torch::kFloat64).reshape({3, 4}).t() * sum_of_ranks()));
  session->allreduce_(matrix, ReduceOp::sum);
  EXPECT_TRUE(torch::equal(matrix, sum));
  EXPECT_DOUBLE_EQ(session->allreduce(torch::tensor(session->rank() + 1.0)).item<double>(),
                   sum_of_ranks() / session->size());
  EXPECT_EQ(session->allreduce(torch::empty({0, 3})).numel(), 0);
}

TEST(TensorCollectives, AllreduceRefusesWhatMakesNoSense) {
  EXPECT_THROW(session->allreduce(torch::ones({2}, torch::kInt64), ReduceOp::average), UserError);
  EXPECT_THROW(session->allreduce(torch::ones({2}, torch::kBool), ReduceOp::sum), UserError);
  EXPECT_THROW(session->allreduce(torch::ones({2}, torch::kComplexFloat)), UserError);
  EXPECT_TRUE(session->allreduce(torch::tensor({session->rank() == 0}), ReduceOp::max).item<bool>());
}

// The result is bit-wise equal to that of single calls, for any mix of tensors.
TEST(TensorCollectives, AllreduceOfManyAtOnce) {
  const std::vector<torch::ScalarType> types = {torch::kFloat32, torch::kFloat64, torch::kBFloat16,
                                                torch::kInt64, torch::kFloat16};
  for (int round = 0; round < 40; ++round) {
    torch::manual_seed(round);  // shapes: the same on all ranks
    const auto pick = [](int below) { return torch::randint(below, {1}).item<int>(); };
    const ReduceOp op =
        std::vector{ReduceOp::sum, ReduceOp::max, ReduceOp::average}[static_cast<std::size_t>(pick(3))];
    std::vector<torch::Tensor> tensors;
    for (int i = pick(9); i > 0; --i) {
      const int kinds = op == ReduceOp::average ? 3 : 5;  // integers have no average
      std::vector<std::int64_t> shape(static_cast<std::size_t>(pick(4)));
      for (auto& extent : shape) extent = pick(20) + (pick(9) == 0 ? 100 : 0);
      tensors.push_back(torch::empty(shape, types[static_cast<std::size_t>(pick(kinds))]));
    }
    torch::manual_seed(100 * round + session->rank());
    for (auto& tensor : tensors) {
      tensor = (torch::randn(tensor.sizes()) * 10).to(tensor.scalar_type());
      if (tensor.dim() == 2) tensor = tensor.t();  // not contiguous
    }
    std::vector<torch::Tensor> expected;
    for (const auto& tensor : tensors) expected.push_back(session->allreduce(tensor, op));
    const auto results = session->allreduce(tensors, op);
    ASSERT_EQ(results.size(), tensors.size());
    session->allreduce_(tensors, op);
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(torch::equal(results[i], expected[i])) << results[i].scalar_type() << results[i].sizes();
      EXPECT_TRUE(torch::equal(tensors[i], expected[i]));
    }
  }
}

TEST(TensorCollectives, AllreduceOfManyRefusesOthersOnAllRanks) {
  if (session->size() == 1) GTEST_SKIP() << "needs two ranks";
  const bool odd = session->rank() == 1;
  const auto a = torch::ones({2, 3}), b = torch::ones({4}), turned = torch::ones({3, 2});
  const auto group = [] {  // a communicator is of no more use after a refusal
    std::vector<int> all(static_cast<std::size_t>(session->size()));
    std::iota(all.begin(), all.end(), 0);
    return session->new_group(all);
  };
  using Tensors = std::vector<torch::Tensor>;
  EXPECT_THROW(group()->allreduce(odd ? Tensors{b, a} : Tensors{a, b}), UserError);
  EXPECT_THROW(group()->allreduce(odd ? Tensors{turned, b} : Tensors{a, b}), UserError);
  EXPECT_THROW(group()->allreduce(odd ? Tensors{} : Tensors{a}), UserError);
  EXPECT_THROW(group()->allreduce(Tensors{torch::ones({2}, torch::kInt64)}), UserError);
  session->barrier();
}

TEST(TensorCollectives, AllGatherOfDifferentRowCounts) {
  const auto own = torch::full({session->rank(), 2, 3}, session->rank(), torch::kInt32);
  const auto all = session->all_gather(own);
  ASSERT_EQ(all.size(0), session->size() * (session->size() - 1) / 2);
  std::int64_t row = 0;
  for (int r = 0; r < session->size(); ++r)
    for (int n = 0; n < r; ++n, ++row)
      EXPECT_TRUE(torch::equal(all[row], torch::full({2, 3}, r, torch::kInt32)));
  EXPECT_THROW(session->all_gather(torch::tensor(1.0)), UserError);
}

TEST(TensorCollectives, AllGatherRefusesDifferentRowsOnAllRanks) {
  if (session->size() == 1) GTEST_SKIP() << "needs two ranks";
  EXPECT_THROW(session->all_gather(torch::ones({2, session->rank() == 0 ? 3 : 4})), UserError);
}

TEST(TensorCollectives, BroadcastFromEachRoot) {
  for (int root = 0; root < session->size(); ++root) {
    auto tensor = torch::full({5, 2}, session->rank(), torch::kBFloat16).t();
    session->broadcast_(tensor, root);
    EXPECT_TRUE(torch::equal(tensor, torch::full({2, 5}, root, torch::kBFloat16)));
  }
}

TEST(TensorCollectives, ReduceScatterDealsTheRowsOut) {
  for (const std::int64_t rows : {0, 1, 5, 12}) {
    const auto own = session->reduce_scatter(torch::arange(rows * 2, torch::kFloat32).reshape({rows, 2}));
    const auto all = session->all_gather(own);
    EXPECT_TRUE(
        torch::allclose(all, torch::arange(rows * 2, torch::kFloat32).reshape({rows, 2}) * session->size()));
    EXPECT_LE(own.size(0), rows / session->size() + 1);
  }
}

TEST(TensorCollectives, AllToAllTransposesBlocks) {
  std::vector<std::int64_t> splits;
  std::vector<torch::Tensor> parts;
  for (int r = 0; r < session->size(); ++r) {
    splits.push_back(r + session->rank());
    parts.push_back(torch::full({splits.back(), 3}, 10 * session->rank() + r, torch::kInt64));
  }
  const auto arrived = session->all_to_all(torch::cat(parts), splits);
  std::vector<torch::Tensor> expected;
  for (int r = 0; r < session->size(); ++r)
    expected.push_back(torch::full({session->rank() + r, 3}, 10 * r + session->rank(), torch::kInt64));
  EXPECT_TRUE(torch::equal(arrived, torch::cat(expected)));
  EXPECT_EQ(session->all_to_all(torch::ones({session->size() * 2, 2})).size(0), session->size() * 2);
}

TEST(AllToAll, RefusesRowsOfDifferentSizesAndNegativeSplits) {
  const int size = session->size();
  if (size == 1) return;
  std::vector<std::int64_t> splits(static_cast<std::size_t>(size), 1);
  splits[0] += 2;
  splits.back() -= 2;
  EXPECT_THROW(session->all_to_all(torch::ones({size, 2}), splits), UserError);
  EXPECT_THROW(session->all_to_all(torch::ones({size, session->rank() == 0 ? 3 : 4})), UserError);
  EXPECT_EQ(session->all_to_all(torch::ones({size, 2})).size(0), size);
}

TEST(Broadcast, RefusesARankThatDoesNotExist) {
  auto tensor = torch::ones({3});
  for (const int root : {-1, session->size()}) EXPECT_THROW(session->broadcast_(tensor, root), UserError);
  EXPECT_TRUE(torch::equal(tensor, torch::ones({3})));
  session->broadcast_(tensor, session->size() - 1);
}

TEST(Together, TheLowestFailingRankSpeaksForAll) {
  const int failing = session->size() - 1;
  try {
    session->together([&] {
      if (session->rank() == failing) throw CorruptInput("bad on " + std::to_string(failing));
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "bad on " + std::to_string(failing));
    EXPECT_EQ(error.exit_code(), ExitCode::corrupt_input);
  }
  session->together([] {});
}

}  // namespace
}  // namespace farandole
