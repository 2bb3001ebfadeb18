#include "farandole/launch/slurm/job_memory.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

namespace farandole {
namespace {

constexpr std::int64_t mib = 1 << 20;

std::optional<std::int64_t> granted(const std::map<std::string, std::string>& variables) {
  return slurm_memory_bytes([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(JobMemory, IsWhatSlurmGrantsOnTheNode) {
  EXPECT_EQ(granted({{"SLURM_JOB_ID", "7"}, {"SLURM_MEM_PER_NODE", "4096"}}), 4096 * mib);
  EXPECT_EQ(granted({{"SLURM_JOB_ID", "7"}, {"SLURM_MEM_PER_CPU", "512"}, {"SLURM_CPUS_ON_NODE", "6"}}),
            3072 * mib);
}

TEST(JobMemory, IsNotLimitedBySlurmOutsideOfAJobOrWithoutANumber) {
  EXPECT_EQ(granted({{"SLURM_MEM_PER_NODE", "4096"}}), std::nullopt);
  EXPECT_EQ(granted({{"SLURM_JOB_ID", "7"}}), std::nullopt);
  EXPECT_EQ(granted({{"SLURM_JOB_ID", "7"}, {"SLURM_MEM_PER_NODE", "0"}}), std::nullopt);
  EXPECT_EQ(granted({{"SLURM_JOB_ID", "7"}, {"SLURM_MEM_PER_CPU", "512"}}), std::nullopt);
  EXPECT_EQ(granted({{"SLURM_JOB_ID", "7"}, {"SLURM_MEM_PER_NODE", "-3"}}), std::nullopt);
}

TEST(JobMemory, IsAtMostThatOfTheMachine) {
  const auto bytes = job_memory_bytes();
  ASSERT_TRUE(bytes);
  EXPECT_GT(*bytes, 16 * mib);
  EXPECT_LT(*bytes, std::int64_t{1} << 50);
}

}  // namespace
}  // namespace farandole
