#include <gmock/gmock.h>
#include <numeric>

#include "comm/communicator_ways.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The last rank does something else than the others: every rank is told, with the same table.
class SignatureCheckTest : public testing::TestWithParam<Way> {
 protected:
  template <class Usual, class Odd>
  void expect_told(Usual usual, Odd odd, const std::vector<std::string>& parts) {
    if (world->layout().size < 2) GTEST_SKIP() << "one rank agrees with itself";
    const auto comm = GetParam().make();
    comm->barrier();
    try {
      if (comm->rank == comm->size - 1)
        odd(*comm);
      else
        usual(*comm);
      FAIL() << "nobody noticed";
    } catch (const UserError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::user_error);
      for (const auto& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(comm->size - 1) + " "));
    }
  }

  static auto allreduce(const char* name, std::size_t count, DType dtype = DType::float32,
                        ReduceOp op = ReduceOp::sum) {
    return [=](Communicator& comm) {
      std::vector<double> data(count + 1);
      comm.allreduce(name, data.data(), count, dtype, op);
    };
  }
  static auto broadcast(const char* name, std::size_t bytes, int root) {
    return [=](Communicator& comm) {
      std::vector<std::byte> data(bytes);
      comm.broadcast(name, data.data(), bytes, root);
    };
  }
};

TEST_P(SignatureCheckTest, OtherCount) {
  expect_told(allreduce("bucket 1", 100), allreduce("bucket 1", 101),
              {"'bucket 1'", "100 elements", "101 elements"});
}
TEST_P(SignatureCheckTest, OtherType) {
  expect_told(allreduce("a", 7), allreduce("a", 7, DType::float64), {"dtype", "float32", "float64"});
}
TEST_P(SignatureCheckTest, OtherReduction) {
  expect_told(allreduce("a", 7), allreduce("a", 7, DType::float32, ReduceOp::average), {"sum", "average"});
}
// The operation that bool lacks is refused only once all are known to want it.
TEST_P(SignatureCheckTest, ARefusedReductionOnOneRank) {
  expect_told(allreduce("a", 7), allreduce("a", 7, DType::boolean), {"float32", "bool"});
}
TEST_P(SignatureCheckTest, OtherName) {
  expect_told(allreduce("weight", 7), allreduce("bias", 7), {"'weight'", "'bias'"});
}
TEST_P(SignatureCheckTest, OtherOperation) {
  expect_told(allreduce("loss", 1), broadcast("weights", 64, 0),
              {"allreduce", "broadcast", "'loss'", "'weights'"});
}
TEST_P(SignatureCheckTest, OtherRoot) {
  expect_told(broadcast("weights", 64, 0), broadcast("weights", 64, 1), {"root", " 0", " 1"});
}
TEST_P(SignatureCheckTest, OtherOrder) {
  const auto both = [](const char* first, const char* second) {
    return [=](Communicator& comm) {
      allreduce(first, 5)(comm);
      allreduce(second, 5)(comm);
    };
  };
  expect_told(both("one", "two"), both("two", "one"), {"'one'", "'two'"});
}
// Long messages, which travel as streams.
TEST_P(SignatureCheckTest, OtherLongOperation) {
  const auto gather = [](Communicator& comm) {
    const auto own = static_cast<std::size_t>(comm.rank), ranks = static_cast<std::size_t>(comm.size);
    std::vector<std::byte> all(ranks * 300'000);
    comm.all_gather("rows", all.data() + own * 300'000, all.data(), std::vector<std::size_t>(ranks, 300'000));
  };
  const auto scatter = [](Communicator& comm) {
    const auto ranks = static_cast<std::size_t>(comm.size);
    std::vector<float> in(ranks * 100'000), out(100'000);
    comm.reduce_scatter("sums", in.data(), out.data(), std::vector<std::size_t>(ranks, 100'000),
                        DType::float32, ReduceOp::sum);
  };
  expect_told(allreduce("a", 300'000), gather, {"'a'", "all_gather"});
  expect_told(gather, scatter, {"all_gather", "reduce_scatter"});
  expect_told(scatter, broadcast("weights", 1'000'000, 0), {"reduce_scatter", "broadcast"});
  expect_told(broadcast("weights", 1'000'000, 0), broadcast("weights", 1'000'001, 0), {"1000001 bytes"});
  expect_told(broadcast("weights", 1'000'000, 0), allreduce("b", 3), {"broadcast", "allreduce"});
}
TEST_P(SignatureCheckTest, OtherShares) {
  const auto gather = [](std::size_t own, std::size_t rest) {
    return [=](Communicator& comm) {
      std::vector<std::size_t> bytes(static_cast<std::size_t>(comm.size), rest);
      bytes[0] = own;
      std::vector<std::byte> in(10), out(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
      comm.all_gather("rows", in.data(), out.data(), bytes);
    };
  };
  expect_told(gather(3, 2), gather(2, 2), {"shares", "size", "'rows'"});
}

// A group's table speaks of the job's ranks.
TEST_P(SignatureCheckTest, AGroupSaysWhoItsRanksAre) {
  const int size = world->layout().size, rank = world->layout().rank;
  if (size < 3) GTEST_SKIP() << "a group that is not the world needs 3 ranks";
  if (rank == 0) return;
  std::vector<int> ranks(static_cast<std::size_t>(size) - 1);
  std::iota(ranks.begin(), ranks.end(), 1);
  const auto comm = world->new_communicator(GetParam().waiting, ranks);
  try {
    allreduce("a", rank == size - 1 ? 2 : 1)(*comm);
    FAIL() << "nobody noticed";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank " + std::to_string(size - 1) + " "), HasSubstr("2 elements")));
  }
}

INSTANTIATE_TEST_SUITE_P(Way, SignatureCheckTest, testing::ValuesIn(ways()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace farandole
