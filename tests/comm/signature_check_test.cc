#include "farandole/comm/signature_check.h"

#include <gmock/gmock.h>
#include <random>
#include <vector>

#include "lane.h"

namespace farandole {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SignatureCheck, EqualCallsHaveEqualHashes) {
  const std::vector<std::size_t> shares = {1, 2, 3};
  EXPECT_EQ(hash_of(allreduce_call("a", 3, DType::float32, ReduceOp::sum)),
            hash_of(allreduce_call("a", 3, DType::float32, ReduceOp::sum)));
  EXPECT_EQ(all_gather_call("a", shares), all_gather_call("a", shares));
}

TEST(SignatureCheck, EveryFieldCounts) {
  const std::vector<std::size_t> shares = {1, 2, 3}, others = {3, 2, 1};
  std::vector<CallDescriptor> calls = {allreduce_call("a", 3, DType::float32, ReduceOp::sum),
                                       allreduce_call("b", 3, DType::float32, ReduceOp::sum),
                                       allreduce_call("a", 4, DType::float32, ReduceOp::sum),
                                       allreduce_call("a", 3, DType::float64, ReduceOp::sum),
                                       allreduce_call("a", 3, DType::float32, ReduceOp::average),
                                       broadcast_call("a", 3, 0),
                                       broadcast_call("a", 3, 1),
                                       all_gather_call("a", shares),
                                       all_gather_call("a", others),
                                       reduce_scatter_call("a", shares, DType::float32, ReduceOp::sum),
                                       reduce_scatter_call("a", others, DType::float32, ReduceOp::sum),
                                       all_to_all_call("a")};
  calls.push_back(calls.front());
  calls.back().sequence = 1;
  for (std::size_t i = 0; i < calls.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) {
      EXPECT_NE(hash_of(calls[i]), hash_of(calls[k])) << i << " " << k;
      EXPECT_THAT(describe_mismatch(std::vector{calls[k], calls[i]}), HasSubstr("rank 1")) << i << " " << k;
    }
}

TEST(SignatureCheck, ALongNameKeepsItsEnds) {
  const std::string middle(200, 'x');
  const auto call = broadcast_call("encoder" + middle + "weight", 1, 0);
  const std::string kept = call.name;
  EXPECT_EQ(kept.size(), sizeof call.name - 1);
  EXPECT_TRUE(kept.starts_with("encoder") && kept.ends_with("weight"));
  const std::string whole(sizeof call.name - 1, 'y');
  EXPECT_EQ(broadcast_call(whole, 1, 0).name, whole);
}

TEST(SignatureCheck, TheTableNamesRanksAndValues) {
  std::vector<CallDescriptor> calls(6, allreduce_call("bucket 0", 100, DType::float32, ReduceOp::average));
  calls[3] = allreduce_call("bucket 0", 101, DType::float32, ReduceOp::average);
  const auto text = describe_mismatch(calls, std::vector{10, 11, 12, 13, 14, 15});
  EXPECT_THAT(text, HasSubstr("\n  operation  all ranks    allreduce"));
  EXPECT_THAT(text, HasSubstr("\n  name       all ranks    'bucket 0'"));
  EXPECT_THAT(text, HasSubstr("\n  size       ranks 10-12, 14, 15 100 elements"));
  EXPECT_THAT(text, HasSubstr("\n  size       rank 13      101 elements"));
  EXPECT_THAT(text, Not(HasSubstr("dtype")));
  EXPECT_THAT(text, Not(HasSubstr("root")));
}

TEST(SignatureCheck, DifferentOperationsShowOnlyWhatTheyHave) {
  const auto text = describe_mismatch(std::vector{allreduce_call("loss", 1, DType::float64, ReduceOp::max),
                                                  broadcast_call("weights", 64, 0)});
  EXPECT_THAT(text, HasSubstr("operation  rank 0       allreduce"));
  EXPECT_THAT(text, HasSubstr("operation  rank 1       broadcast"));
  EXPECT_THAT(text, HasSubstr("name       rank 1       'weights'"));
  EXPECT_THAT(text, HasSubstr("size       rank 0       1 elements"));
  EXPECT_THAT(text, HasSubstr("dtype      rank 0       float64"));
  EXPECT_THAT(text, HasSubstr("dtype      rank 1       -"));
  EXPECT_THAT(text, HasSubstr("root       rank 0       -"));
}

TEST(SignatureCheck, RandomDifferencesAreAllNamed) {
  std::mt19937 random(seed(1));
  for (int round = 0; round < 200; ++round) {
    std::vector<CallDescriptor> calls(1 + random() % 9, broadcast_call("x", 8, 0));
    const auto odd = random() % calls.size();
    calls[odd].root = 7;
    const auto text = describe_mismatch(calls);
    EXPECT_EQ(text.find("root") != std::string::npos, calls.size() > 1);
    if (calls.size() > 1) {
      EXPECT_THAT(text, HasSubstr("rank " + std::to_string(odd) + " "));
    }
  }
}

}  // namespace
}  // namespace farandole
