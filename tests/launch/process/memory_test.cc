#include "farandole/launch/process/memory.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "environment_of.h"

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

struct Kernel {
  const TemporaryFolder folder;
  MemoryWatch::Places places{{folder / "cgroup" / "a" / "b", folder / "cgroup" / "a", folder / "cgroup"},
                             folder / "vmstat",
                             folder / "kmsg"};

  Kernel() { std::filesystem::create_directories(folder / "cgroup" / "a" / "b"); }
  void write(const std::string& file, const std::string& text) const { std::ofstream(folder / file) << text; }
};

TEST(MemoryWatch, SaysNothingWhereTheKernelDoes) {
  const Kernel kernel;
  const MemoryWatch watch(kernel.places);
  EXPECT_EQ(watch.evidence(1), "");
  EXPECT_FALSE(watch.limit_bytes());
}

TEST(MemoryWatch, ComparesTheNearestGroupsCounter) {
  for (const std::string file : {"memory.events", "memory.oom_control"}) {
    const Kernel kernel;
    kernel.write("cgroup/a/" + file, "low 0\noom 1\noom_kill 2\n");
    kernel.write("cgroup/" + file, "oom_kill 7\n");
    kernel.write("vmstat", "oom_kill 7\n");
    const MemoryWatch watch(kernel.places);
    EXPECT_EQ(watch.evidence(1), "");
    kernel.write("cgroup/" + file, "oom_kill 8\n");
    EXPECT_EQ(watch.evidence(1), "") << "another group's";
    kernel.write("vmstat", "oom_kill 8\n");
    EXPECT_EQ(watch.evidence(1), "") << "the host counted another group's";
    kernel.write("cgroup/a/memory.max", "536870912\n");
    kernel.write("cgroup/a/" + file, "low 0\noom 1\noom_kill 4\n");
    EXPECT_EQ(watch.evidence(1), "its control group counts 2 more out-of-memory kills, its limit is 512 MiB");
  }
}

TEST(MemoryWatch, ComparesTheHostsCounterWhereNoGroupHasOne) {
  const Kernel kernel;
  kernel.write("vmstat", "oom_kill 7\n");
  const MemoryWatch watch(kernel.places);
  EXPECT_EQ(watch.evidence(1), "");
  kernel.write("vmstat", "oom_kill 8\n");
  EXPECT_EQ(watch.evidence(1), "its host counts 1 more out-of-memory kill");
}

TEST(MemoryWatch, TakesTheSmallestLimit) {
  const Kernel kernel;
  kernel.write("cgroup/a/b/memory.max", "max\n");
  kernel.write("cgroup/a/memory.max", "2000\n");
  kernel.write("cgroup/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(MemoryWatch(kernel.places).limit_bytes(), 2000);
  kernel.write("cgroup/memory.limit_in_bytes", "1000\n");
  EXPECT_EQ(MemoryWatch(kernel.places).limit_bytes(), 1000);
}

TEST(MemoryWatch, FindsTheProcessInTheKernelsLog) {
  const Kernel kernel;
  const MemoryWatch watch(kernel.places);
  const auto record = [&](std::int64_t time_us, int pid) {
    kernel.write("kmsg", "3,99," + std::to_string(time_us) +
                             ",-;Memory cgroup out of memory: Killed process " + std::to_string(pid) +
                             " (python) total-vm:1kB\n");
  };
  const auto now_us = now_ns() / 1000;
  record(now_us, 123);
  EXPECT_EQ(watch.evidence(123),
            "the kernel's log: Memory cgroup out of memory: Killed process 123 (python) total-vm:1kB");
  EXPECT_EQ(watch.evidence(12), "");
  record(now_us - 3'600'000'000, 123);
  EXPECT_EQ(watch.evidence(123), "") << "of an earlier process";
  kernel.write("kmsg", "Killed process 123 ");
  EXPECT_EQ(watch.evidence(123), "");
}

constexpr std::int64_t mib = 1 << 20;

std::optional<std::int64_t> granted(const Variables& variables) {
  return slurm_memory_bytes(environment_of(variables));
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
