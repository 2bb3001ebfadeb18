#include "farandole/job/run/resource_usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace farandole {
namespace {

using testing::HasSubstr;

TEST(ResourceTable, FewRanksHaveOneLineEach) {
  const auto table = resource_table({{50, 100, 1, 2}, {150, 200, 3, 4}}, {"a", "b"});
  EXPECT_THAT(table, HasSubstr("    0  a                     50         100       1.0        2.0\n"));
  EXPECT_THAT(table, HasSubstr("    1  b                    150         200       3.0        4.0\n"));
}

TEST(ResourceTable, GpusHaveColumnsIfARankHasOne) {
  const std::vector<std::string> hosts = {"a", "b"};
  EXPECT_THAT(resource_table({{50, 100, 1, 2}, {150, 200, 3, 4}}, hosts), testing::Not(HasSubstr("GPU")));
  const auto table = resource_table({{50, 100, 1, 2, 87.4, 2048}, {150, 200, 3, 4}}, hosts);
  EXPECT_THAT(table, HasSubstr(" written MB   GPU % GPU memory MiB\n"));
  EXPECT_THAT(table, HasSubstr("        2.0      87           2048\n"));
  EXPECT_THAT(table, HasSubstr("        4.0       -              -\n"));
}

TEST(ResourceTable, ManyRanksAreLeastMeanAndMost) {
  std::vector<ResourceUsage> usage;
  for (int rank = 0; rank < 1001; ++rank) usage.push_back({static_cast<double>(rank), 1000.0 - rank, 5, 0});
  const auto table = resource_table(usage, std::vector<std::string>(usage.size(), "host"));
  EXPECT_THAT(table, HasSubstr("least  1001 ranks             0           0       5.0        0.0\n"));
  EXPECT_THAT(table, HasSubstr(" mean  1001 ranks           500         500       5.0        0.0\n"));
  EXPECT_THAT(table, HasSubstr(" most  1001 ranks          1000        1000       5.0        0.0\n"));
}

TEST(ResourceTable, TheMeanOfManyGpusIsThatOfTheRanksThatHaveOne) {
  std::vector<ResourceUsage> usage(20, ResourceUsage{100, 1000, 5, 0});
  for (const std::size_t rank : {3, 7})
    usage[rank].gpu_percent = usage[rank].gpu_memory_mib = 10.0 * static_cast<double>(rank);
  const auto table = resource_table(usage, std::vector<std::string>(usage.size(), "host"));
  EXPECT_THAT(table, HasSubstr("        0.0      30             30\n"));
  EXPECT_THAT(table, HasSubstr("        0.0      50             50\n"));
  EXPECT_THAT(table, HasSubstr("        0.0      70             70\n"));
}

}  // namespace
}  // namespace farandole
