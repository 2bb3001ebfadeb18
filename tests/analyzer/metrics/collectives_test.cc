// Bytes and speed of collectives: names of operations in PyTorch's backends, and missing ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "analyzer/formats/kineto_file.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/report/report.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;
using testing::KinetoFile;
using ::testing::SizeIs;

TEST(PlainOperation, KnowsTheNamesThatProcessGroupNcclWrites) {
  const std::map<std::string, std::string> names = {{"allreduce", "allreduce"},
                                                    {"allreduce_coalesced", "allreduce"},
                                                    {"allreduce_sparse", "allreduce"},
                                                    {"all_gather", "allgather"},
                                                    {"_allgather_base", "allgather"},
                                                    {"all_gather_into_tensor", "allgather"},
                                                    {"allgather_into_tensor_coalesced", "allgather"},
                                                    {"reduce_scatter", "reducescatter"},
                                                    {"_reduce_scatter_base", "reducescatter"},
                                                    {"reduce_scatter_tensor_coalesced", "reducescatter"},
                                                    {"all_to_all", "alltoall"},
                                                    {"all_to_allv", "alltoall"},
                                                    {"reduce", "reduce"},
                                                    {"_reduce_oop", "reduceoop"},
                                                    {"broadcast", "broadcast"},
                                                    {"gather", "gather"},
                                                    {"scatter", "scatter"},
                                                    {"send", "send"}};
  for (const auto& [name, plain] : names) {
    EXPECT_EQ(plain_operation(name), plain);
    EXPECT_DOUBLE_EQ(bus_factor(name, 4), bus_factor(plain, 4)) << name;
  }
  EXPECT_DOUBLE_EQ(bus_factor("allreduce_coalesced", 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor("_reduce_scatter_base", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("_reduce_oop", 4), 1);
}

// The ranks in `ranks` of `world` ranks. Each all-gather takes 10 ms and gets 4 MB from each rank.
CollectiveRow all_gather_of(const std::vector<int>& ranks, int world) {
  const TemporaryFolder folder;
  for (const int rank : ranks) {
    KinetoFile file(rank, world);
    for (int i = 0; i < 12; ++i) {
      const nlohmann::json args = {{"Collective name", "_allgather_base"},
                                   {"In msg nelems", 1'000'000},
                                   {"dtype", "Float"},
                                   {"Group size", world},
                                   {"Process Group Name", i % 2 == 0 ? "shards" : "replicas"}};
      file.gpu("kernel", "ncclDevKernel_AllGather_RING_LL(x)", 20, 1e6 + i * 1e5, 1.01e6 + i * 1e5, args);
      file.gpu("kernel", "void gemm<float>(int)", 7, 1.02e6 + i * 1e5, 1.09e6 + i * 1e5);
    }
    testing::write_text(folder / ("rank" + std::to_string(rank) + ".json"), file.text());
  }
  const auto metrics = analyze_run(folder.path()).metrics;
  EXPECT_THAT(metrics.collectives, SizeIs(1));
  return metrics.collectives.at(0);
}

TEST(AllGather, CarriesWhatAllRanksGiveAlsoThoseThatAreMissing) {
  for (const auto& ranks : {std::vector{0, 1, 2, 3}, {0, 2}, {3}}) {
    const auto row = all_gather_of(ranks, 4);
    EXPECT_DOUBLE_EQ(row.bytes.value.value(), 16e6);
    EXPECT_DOUBLE_EQ(row.algbw_gbps.value.value(), 1.6);
    EXPECT_DOUBLE_EQ(row.busbw_gbps.value.value(), 1.2);
  }
}

TEST(AllGather, OfFarandoleIsRecordedWithTheBytesOfAllRanks) {
  const TemporaryFolder folder;
  testing::TraceBuilder trace(4);
  for (int rank = 0; rank < 4; ++rank)
    for (int i = 0; i < 12; ++i)
      trace.collective(rank, 1, i, i * 10'000'000, i * 10'000'000 + 1'000'000, 4'000'000, "rows", 0,
                       "all_gather");
  trace.write_run(folder / "run", {{"ranks", 4}});
  const auto row = analyze_run(folder / "run").metrics.collectives.at(0);
  EXPECT_DOUBLE_EQ(row.bytes.value.value(), 4e6);
  EXPECT_DOUBLE_EQ(row.busbw_gbps.value.value(), 3);
}

// Two pairs of ranks have collectives of one name. Rank 1 is always 2 ms late, rank 3 is 1 ms late and has
// more of them.
TEST(LastRank, IsThatOfItsOwnCommunicator) {
  const TemporaryFolder folder;
  testing::TraceBuilder trace(4);
  constexpr auto ms = testing::TraceBuilder::ms;
  for (int rank = 0; rank < 4; ++rank)
    for (int i = 0; i < (rank < 2 ? 10 : 40); ++i)
      trace.collective(rank, 1, i,
                       i * 10 * ms + (rank == 1   ? 2
                                      : rank == 3 ? 1
                                                  : 0) *
                                         ms,
                       (i * 10 + 4) * ms, 1'000'000, "bucket 0", 1 + rank / 2);
  trace.write_run(folder / "run", {{"ranks", 4}});
  const auto row = analyze_run(folder / "run").metrics.collectives.at(0);
  EXPECT_EQ(row.last_rank, 1);
  EXPECT_DOUBLE_EQ(row.last_share.value.value(), 1);
  EXPECT_DOUBLE_EQ(row.late_us.value.value(), 2000);
}

TEST(AllGather, OfAGroupOfUnknownSizeClaimsNothingOfIt) {
  const TemporaryFolder folder;
  for (const int rank : {0, 1, 2}) {
    KinetoFile file(rank, 8);
    for (int i = 0; i < 12; ++i) {
      const auto args = [&](const char* name, const std::string& group) {
        return nlohmann::json{{"Collective name", name},
                              {"In msg nelems", 1'000'000},
                              {"dtype", "Float"},
                              {"Process Group Name", group}};
      };
      const double t = 1e6 + i * 1e5;
      file.gpu("kernel", "ncclDevKernel_AllReduce(x)", 20, t, t + 1e4, args("allreduce", "all"));
      file.gpu("kernel", "ncclDevKernel_AllGather(x)", 20, t + 2e4, t + 3e4,
               args("_allgather_base", rank < 2 ? "some" : "others"));
    }
    testing::write_text(folder / ("rank" + std::to_string(rank) + ".json"), file.text());
  }
  for (const auto& row : analyze_run(folder.path()).metrics.collectives) {
    const bool gathers = row.operation == "_allgather_base";
    EXPECT_EQ(row.bytes.value.has_value(), !gathers);
    EXPECT_EQ(row.busbw_gbps.value.has_value(), !gathers);
    EXPECT_THAT(row.algbw_gbps.unknown, HasSubstr(gathers ? "how many ranks" : ""));
  }
}

// For example, a kernel of symmetric memory does not have "nccl" in its name.
TEST(KernelOfACollective, IsKnownByItsArguments) {
  const TemporaryFolder folder;
  KinetoFile file(0, 1);
  for (int i = 0; i < 12; ++i) {
    const double t = 1e6 + i * 1e5;
    file.gpu("kernel", "void gemm<float>(int)", 7, t, t + 3e4, {{"Collective", "none"}, {"blocks", {1, 2}}});
    file.gpu("kernel", "multimem_all_reduce_kernel<float>(float*)", 20, t + 5e4, t + 7e4,
             {{"Collective name", "allreduce"},
              {"In msg nelems", 500'000},
              {"dtype", "Float"},
              {"Group size", 1}});
  }
  testing::write_text(folder / "trace.json", file.text());
  const auto metrics = analyze_run(folder / "trace.json").metrics;
  ASSERT_TRUE(metrics.ranks.at(0).gpu);
  EXPECT_EQ(metrics.ranks[0].gpu->compute, 12 * 30'000'000);
  EXPECT_EQ(metrics.ranks[0].gpu->communication_only, 12 * 20'000'000);
  ASSERT_THAT(metrics.collectives, SizeIs(1));
  EXPECT_EQ(metrics.collectives[0].operation, "allreduce");
  EXPECT_DOUBLE_EQ(metrics.collectives[0].bytes.value.value(), 2e6);
}

}  // namespace
}  // namespace farandole
