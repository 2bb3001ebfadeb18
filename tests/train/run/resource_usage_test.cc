#include "farandole/train/resource_usage.h"

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

TEST(ResourceTable, ManyRanksAreLeastMeanAndMost) {
  std::vector<ResourceUsage> usage;
  for (int rank = 0; rank < 1001; ++rank) usage.push_back({static_cast<double>(rank), 1000.0 - rank, 5, 0});
  const auto table = resource_table(usage, std::vector<std::string>(usage.size(), "host"));
  EXPECT_THAT(table, HasSubstr("least  1001 ranks             0           0       5.0        0.0\n"));
  EXPECT_THAT(table, HasSubstr(" mean  1001 ranks           500         500       5.0        0.0\n"));
  EXPECT_THAT(table, HasSubstr(" most  1001 ranks          1000        1000       5.0        0.0\n"));
}

}  // namespace
}  // namespace farandole
