#include "farandole/launch/slurm/allocation.h"

#include <gmock/gmock.h>

#include "environment_of.h"

namespace farandole {
namespace {

using namespace ::testing;

std::optional<ShrunkAllocation> left(const std::vector<std::string>& before,
                                     const std::vector<std::string>& now, int ranks,
                                     const Variables& variables) {
  return shrunk_allocation(before, now, ranks, environment_of(variables));
}

TEST(Allocation, OfAllHostsIsNotShrunk) {
  EXPECT_FALSE(left({"a", "b"}, {"a", "b"}, 2, {}));
  EXPECT_FALSE(left({"a", "b"}, {}, 2, {})) << "Slurm did not answer";
}

TEST(Allocation, KeepsItsRanksForEachCpu) {
  const auto shrunk = left({"a", "b", "c"}, {"a", "c"}, 12,
                           {{"SLURM_JOB_NODELIST", "[a-c]"},
                            {"SLURM_JOB_NUM_NODES", "3"},
                            {"SLURM_NNODES", "3"},
                            {"SLURM_NTASKS", "12"},
                            {"SLURM_TASKS_PER_NODE", "4(x3)"},
                            {"SLURM_JOB_CPUS_PER_NODE", "8(x2),2"}});
  ASSERT_TRUE(shrunk);
  EXPECT_THAT(shrunk->lost, ElementsAre("b"));
  EXPECT_EQ(shrunk->hosts, 2u);
  EXPECT_EQ(shrunk->ranks, 6);  // 12 * 10 / 18, rounded down
  EXPECT_THAT(
      shrunk->environment,
      UnorderedElementsAre(Pair("SLURM_JOB_NODELIST", "a,c"), Pair("SLURM_JOB_NUM_NODES", "2"),
                           Pair("SLURM_NNODES", "2"), Pair("SLURM_NTASKS", "6"),
                           Pair("SLURM_TASKS_PER_NODE", "3(x2)"), Pair("SLURM_JOB_CPUS_PER_NODE", "8,2")));
}

TEST(Allocation, WithUnknownCpusKeepsItsRanksForEachHost) {
  const auto shrunk = left({"a", "b", "c"}, {"c"}, 4, {{"SLURM_JOB_CPUS_PER_NODE", "x"}});
  ASSERT_TRUE(shrunk);
  EXPECT_THAT(shrunk->lost, ElementsAre("a", "b"));
  EXPECT_EQ(shrunk->ranks, 1);
  EXPECT_THAT(shrunk->environment, ElementsAre(Pair("SLURM_JOB_CPUS_PER_NODE", std::nullopt)));
}

TEST(CpusByNode, ReadsSlurmsNotation) {
  EXPECT_THAT(cpus_by_node("4"), ElementsAre(4));
  EXPECT_THAT(cpus_by_node("2(x3),16"), ElementsAre(2, 2, 2, 16));
  for (const char* bad : {"", "x", "2(x", "2(x3", "2(x0)", "2,", "2(x3)4", "0", "-2", "2(x99999999999)"})
    EXPECT_THAT(cpus_by_node(bad), IsEmpty()) << bad;
}

}  // namespace
}  // namespace farandole
