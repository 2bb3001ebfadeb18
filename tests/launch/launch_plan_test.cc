#include "farandole/launch/launch_plan.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "environment_of.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/launch/process/machine.h"

namespace farandole {
namespace {

using namespace ::testing;

struct Planned {
  LaunchPlan plan;
  std::string command;
  Variables environment;  // "(removed)" without a value
};

Planned plan(std::optional<int> ranks, const Variables& variables,
             LaunchFacts facts = {8, false, true, true, {}, "/f/bin"}, LaunchRequest request = {}) {
  request.ranks = ranks;
  request.program = {"true"};
  Planned planned{plan_launch(request, facts, environment_of(variables)), "", {}};
  for (const auto& word : planned.plan.command) planned.command += word + " ";
  for (const auto& [name, value] : planned.plan.environment)
    planned.environment[name] = value.value_or("(removed)");
  return planned;
}

std::string refusal(std::optional<int> ranks, const Variables& variables,
                    LaunchFacts facts = {8, false, true, true, {}, ""}) {
  try {
    plan(ranks, variables, facts);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

const Variables batch = {
    {"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_JOB_CPUS_PER_NODE", "4(x2)"}};

Variables operator+(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

TEST(LaunchPlan, OutsideSlurmMpirunSharesTheCores) {
  const auto two = plan(2, {{"PATH", "/bin"}});
  EXPECT_THAT(two.command, testing::AllOf(testing::StartsWith("mpirun "), HasSubstr("-n 2 "),
                                          HasSubstr("--bind-to none"), Not(HasSubstr(" -q "))));
  EXPECT_EQ(two.environment.at("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(two.environment.at("PATH"), "/bin:/f/bin");
  EXPECT_EQ(plan({}, {}).plan.ranks, 1);
  EXPECT_EQ(plan(all_cores, {}).plan.ranks, 8);
  const auto many = plan(20, {{"OMPI_MCA_rmaps_base_oversubscribe", "1"}});
  EXPECT_EQ(many.environment.at("OMP_NUM_THREADS"), "1");
  EXPECT_EQ(many.environment.at("OMPI_MCA_mpi_yield_when_idle"), "1");
}

TEST(LaunchPlan, WithoutMpirunTheLauncherStartsTheRanks) {
  const LaunchFacts facts{8, false, true, false, {}, ""};
  const auto two = plan(2, {}, facts);
  EXPECT_EQ(two.plan.starter, Starter::own);
  EXPECT_EQ(two.command, "");
  EXPECT_EQ(two.environment.at("OMP_NUM_THREADS"), "4");
  LaunchRequest request{.starter = Starter::mpirun};
  EXPECT_THROW(plan(2, {}, facts, request), UserError);
  request.starter = Starter::own;
  EXPECT_THROW(plan(2, batch, facts, request), UserError) << "two nodes";
  request.local = true;
  EXPECT_EQ(plan(2, batch, facts, request).plan.starter, Starter::own);
}

TEST(LaunchPlan, LocalRanksAreStartedWithoutSlurm) {
  LaunchRequest request{.local = true};
  const auto local = plan(2, {{"SLURM_JOB_ID", "7"}}, {8, false, true, true, {}, ""}, request);
  EXPECT_EQ(local.plan.starter, Starter::mpirun);
  EXPECT_EQ(local.environment.at("SLURM_JOB_ID"), "(removed)");
  EXPECT_THAT(local.command, Not(HasSubstr("SLURM_JOB_ID")));
}

TEST(LaunchPlan, WhatTheUserSetStays) {
  const auto own = plan(20, {{"OMP_NUM_THREADS", "3"},
                             {"OMPI_MCA_rmaps_base_oversubscribe", "true"},
                             {"OMPI_MCA_mpi_yield_when_idle", "0"},
                             {"OMPI_MCA_hwloc_base_binding_policy", "core"}});
  EXPECT_EQ(own.environment.count("OMP_NUM_THREADS"), 0u);
  EXPECT_EQ(own.environment.count("OMPI_MCA_mpi_yield_when_idle"), 0u);
  EXPECT_THAT(own.command, Not(HasSubstr("--bind-to")));
}

TEST(LaunchPlan, InASlurmJobSrunTakesItsTasks) {
  const auto tasks = plan({}, batch + Variables{{"SLURM_NTASKS", "4"}, {"SLURM_CPUS_PER_TASK", "2"}});
  EXPECT_EQ(tasks.plan.starter, Starter::srun);
  EXPECT_THAT(tasks.plan.command,
              testing::AllOf(Contains("--ntasks=4"), Contains("--mpi=pmix"), Contains("--kill-on-bad-exit=1"),
                             Contains("--cpus-per-task=2"), Not(Contains("--overcommit")),
                             Not(Contains("--overlap"))));
  EXPECT_EQ(tasks.environment.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(tasks.environment.at("SLURM_PMIX_FENCE"), "ring");
  EXPECT_EQ(plan({}, batch + Variables{{"SLURM_PMIX_FENCE", "tree"}}).environment.count("SLURM_PMIX_FENCE"),
            0u);
  EXPECT_EQ(plan({}, batch + Variables{{"SLURM_NTASKS_PER_NODE", "3"}}).plan.ranks, 6);
  EXPECT_EQ(plan({}, batch).plan.ranks, 2) << "one a node, as srun does";
  EXPECT_EQ(plan(all_cores, batch).plan.ranks, 8) << "all CPUs of the allocation";
  EXPECT_EQ(plan(all_cores, batch + Variables{{"SLURM_NTASKS", "4"}}).plan.ranks, 4);
}

TEST(LaunchPlan, AnotherNumberThanTheJobsFitsTheJob) {
  const auto nine = plan(9, batch + Variables{{"SLURM_NTASKS_PER_NODE", "1"}, {"SLURM_OVERCOMMIT", "1"}});
  EXPECT_THAT(nine.plan.command, Contains("--overcommit"));
  EXPECT_EQ(nine.environment.at("SLURM_NTASKS_PER_NODE"), "(removed)");
  EXPECT_THAT(plan(1, batch).plan.command, Contains("--nodes=1"));
  EXPECT_EQ(plan(1, batch).environment.at("OMP_NUM_THREADS"), "4");
  EXPECT_THAT(plan(2, batch + Variables{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}).plan.command,
              Contains("--overlap"));
  EXPECT_THAT(plan(2, batch + Variables{{"SLURM_MPI_TYPE", "pmix_v4"}}).plan.command,
              Not(Contains("--mpi=pmix")));
}

TEST(LaunchPlan, ANumberOfNodesMustBeThatOfTheJob) {
  LaunchRequest request;
  const LaunchFacts facts{8, false, true, true, {}, ""};
  const auto refusal = [&](int nodes, const Variables& variables) -> std::string {
    request.nodes = nodes;
    try {
      plan(2, variables, facts, request);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(2, batch), "");
  EXPECT_THAT(refusal(3, batch), HasSubstr("-N 3: this Slurm job has 2 nodes, and all of them are used; "));
  EXPECT_EQ(refusal(1, {}), "");
  EXPECT_THAT(refusal(2, {}), HasSubstr("-N 2: without a Slurm job, all ranks are on this machine; "));
}

TEST(LaunchPlan, AllCoresHaveAWord) {
  EXPECT_EQ(parse_ranks("all"), all_cores);
  EXPECT_EQ(parse_ranks("-1"), all_cores) << "as in the version before";
  EXPECT_EQ(parse_ranks("3"), 3);
  EXPECT_THROW(parse_ranks("many"), UserError);
}

TEST(LaunchPlan, RanksShareCoresOnlyIfTheUserWantsIt) {
  EXPECT_THAT(refusal(9, {}), HasSubstr("9 ranks need more than the 8 cores of this machine; use -n 8"));
  EXPECT_THAT(refusal(9, batch), HasSubstr("8 cores of this job"));
  EXPECT_THAT(refusal(5, batch + Variables{{"SLURM_CPUS_PER_TASK", "2"}}),
              HasSubstr("5 ranks with 2 cores each (SLURM_CPUS_PER_TASK) need more than the 8 cores"));
  EXPECT_EQ(refusal(8, {}), "");
  EXPECT_EQ(refusal(4, batch + Variables{{"SLURM_CPUS_PER_TASK", "2"}}), "");
  EXPECT_EQ(refusal(99, {{"SLURM_JOB_ID", "7"}}), "") << "the CPUs of the job are not known";
  LaunchRequest allowed{.oversubscribe = true};
  const auto many = plan(20, batch, {8, false, true, true, {}, ""}, allowed);
  EXPECT_THAT(many.plan.command, Contains("--overcommit"));
  EXPECT_EQ(many.environment.at("OMPI_MCA_mpi_yield_when_idle"), "1");
}

TEST(LaunchPlan, WithoutPmixMpirunStartsTheTasksOfASlurmJob) {
  const auto tasks = batch + Variables{{"SLURM_NTASKS", "4"}, {"SLURM_CPUS_PER_TASK", "2"}};
  const LaunchFacts without{2, false, true, true, {}, "", false};
  const auto four = plan({}, tasks, without);
  EXPECT_THAT(four.command, testing::AllOf(testing::StartsWith("mpirun "), HasSubstr("-n 4 ")));
  EXPECT_EQ(four.environment.at("OMP_NUM_THREADS"), "2");
  const auto bare = plan({}, tasks, {2, false, true, false, {}, "", false});
  EXPECT_THAT(bare.command, testing::AllOf(testing::StartsWith("srun "), HasSubstr("--mpi=none ")))
      << "for programs without MPI";
  LaunchRequest request{.starter = Starter::mpirun};
  EXPECT_EQ(plan({}, tasks, {8, false, true, true, {}, ""}, request).plan.starter, Starter::mpirun);
  request.starter = Starter::srun;
  EXPECT_EQ(plan({}, tasks, without, request).plan.starter, Starter::srun);
  EXPECT_THROW(plan(2, {}, without, request), UserError);
}

TEST(LaunchPlan, ATerminalIsToldUnlessLinesArePrefixed) {
  LaunchRequest request;
  const LaunchFacts facts{8, false, false, true, 132, ""};
  EXPECT_EQ(plan(1, {}, facts).environment.at("FARANDOLE_TERMINAL_COLUMNS"), "132");
  request.prefix = true;
  EXPECT_EQ(plan(1, {}, facts, request).environment.count("FARANDOLE_TERMINAL_COLUMNS"), 0u);
}

TEST(LaunchPlan, RefusesWhatCannotWork) {
  for (const int ranks : {0, -2, -100, 2'000'000})
    EXPECT_THAT(refusal(ranks, {}), HasSubstr("not a number of ranks"));
  EXPECT_THAT(refusal(2, {}, {8, true, true, true, {}, ""}), HasSubstr("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"));
  const Variables allowed = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  EXPECT_EQ(refusal(2, allowed, {8, true, true, true, {}, ""}), "");
  EXPECT_EQ(refusal(2, batch, {8, true, true, true, {}, ""}), "") << "srun does not mind";
  EXPECT_THAT(refusal(2, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}}),
              HasSubstr("already one of 4"));
  EXPECT_THAT(
      refusal(
          2, batch + Variables{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}}),
      HasSubstr("already one of 2"));
  EXPECT_EQ(refusal(2, batch + Variables{{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), "")
      << "a batch script";
}

TEST(Machine, ControlGroupsLimitCores) {
  const TemporaryFolder folder(std::filesystem::temp_directory_path());
  const auto root = folder.path() / "cgroup";
  std::filesystem::create_directories(root / "job" / "step");
  std::ofstream(folder.path() / "self") << "0::/job/step\n";
  const auto cores = [&] { return cgroup_cores(root, folder.path() / "self"); };
  EXPECT_FALSE(cores().has_value());
  std::ofstream(root / "job" / "step" / "cpu.max") << "max 100000\n";
  EXPECT_FALSE(cores().has_value());
  std::ofstream(root / "job" / "cpu.max") << "250000 100000\n";
  EXPECT_EQ(cores(), 3) << "the parent's limit, rounded up";
  std::ofstream(root / "job" / "step" / "cpu.max") << "50000 100000\n";
  EXPECT_EQ(cores(), 1);
  std::ofstream(folder.path() / "self") << "4:memory:/job\n3:cpu,cpuacct:/job\n";
  std::filesystem::create_directories(root / "cpu" / "job");
  std::ofstream(root / "cpu" / "job" / "cpu.cfs_quota_us") << "400000\n";
  std::ofstream(root / "cpu" / "job" / "cpu.cfs_period_us") << "100000\n";
  EXPECT_EQ(cores(), 4);
  std::ofstream(root / "cpu" / "job" / "cpu.cfs_quota_us") << "-1\n";
  EXPECT_FALSE(cores().has_value());
  EXPECT_GE(usable_cores(), 1);
}

TEST(Machine, FindsProgramsAsTheShellDoes) {
  EXPECT_TRUE(find_program("sh", "/proc/nonexistent:/bin:/usr/bin").has_value());
  EXPECT_FALSE(find_program("sh", "/proc/nonexistent").has_value());
  EXPECT_FALSE(find_program("", "/bin").has_value());
  EXPECT_TRUE(find_program("/bin/sh", "").has_value());
  EXPECT_FALSE(find_program("/etc/passwd", "/bin").has_value()) << "not executable";
  EXPECT_FALSE(find_program("/bin", "").has_value()) << "a folder";
}

// As in a container on a node: the variables of the job are there, and its commands are not.
TEST(LaunchPlan, AJobWithoutSrunIsRefusedUnlessTheRanksAreLocal) {
  LaunchFacts facts{8, false, false, true, {}, ""};
  const Variables job = {{"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NODELIST", "cn07"}};
  EXPECT_EQ(
      refusal(2, job, facts),
      "SLURM_JOB_ID names Slurm job 4711, but srun is not in PATH, as in a container; start all ranks on this "
      "machine with --local, or make Slurm's commands and configuration visible here");
  facts.srun_found = true;
  facts.srun_refusal = "srun: fatal: Could not establish a configuration source";
  EXPECT_THAT(refusal(2, job, facts),
              HasSubstr("but srun does not work here (srun: fatal: Could not establish"));
  LaunchRequest request{.local = true};
  EXPECT_EQ(plan(2, batch, facts, request).plan.starter, Starter::mpirun);
  request.local = false;
  request.starter = Starter::mpirun;
  EXPECT_EQ(plan(2, batch, facts, request).plan.starter, Starter::mpirun) << "the user's choice";
}

// With the port, a server begins as if nobody were there, and nobody else takes it before.
TEST(HeldPort, IsLeftToTheServerOnly) {
  const auto held = hold_tcp_port();
  ASSERT_GT(held.number, 0);
  const auto begins = [&](bool server) {
    const OwnedDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (server) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(held.number));
    return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
           ::listen(socket.get(), 1) == 0;
  };
  EXPECT_FALSE(begins(false));
  EXPECT_TRUE(begins(true));
  EXPECT_NE(hold_tcp_port().number, held.number);
}

}  // namespace
}  // namespace farandole
