#include "farandole/base/process/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment_of.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// "4 SLURM_NTASKS", or "" for nothing.
std::string expected(const Variables& variables) {
  const auto size = expected_world_size(environment_of(variables));
  return size ? std::to_string(size->value) + " " + size->variable : "";
}

std::string rank_in(const Variables& variables) {
  const auto rank = launched_rank(environment_of(variables));
  return rank ? std::to_string(rank->value) + " " + rank->variable : "";
}

TEST(LaunchEnvironment, TheNearestLauncherCounts) {
  const Variables step = {
      {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"}};
  Variables mpirun = step, alone = step;
  mpirun["OMPI_COMM_WORLD_SIZE"] = "3";
  Variables own = mpirun;
  own["FARANDOLE_SIZE"] = "4";
  alone["SLURM_STEP_NUM_TASKS"] = "1";  // a step of one task is meant to be alone
  // Outside of a step, its variables are left from elsewhere.
  const Variables batch = {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"}};
  const std::pair<Variables, const char*> cases[] = {
      {{}, ""},
      {mpirun, "3 OMPI_COMM_WORLD_SIZE"},
      {own, "4 FARANDOLE_SIZE"},
      {{{"PMI_SIZE", "5"}}, "5 PMI_SIZE"},
      {{{"MV2_COMM_WORLD_SIZE", "6"}, {"PMI_SIZE", "5"}}, "5 PMI_SIZE"},
      {step, "2 SLURM_STEP_NUM_TASKS"},
      {alone, "1 SLURM_STEP_NUM_TASKS"},
      {batch, "8 SLURM_NTASKS"},
      {{{"SLURM_JOB_ID", "7"}, {"SLURM_NPROCS", "9"}}, "9 SLURM_NPROCS"},
      {{{"SLURM_NPROCS", "9"}}, ""},  // a user's habit, no job
  };
  for (const auto& [variables, size] : cases) EXPECT_EQ(expected(variables), size);
}

TEST(LaunchEnvironment, WhatIsNoPositiveNumberIsNotSet) {
  for (const char* bad : {"", "0", "-2", "4x", " 4", "4(x2)", "99999999999999999999"})
    EXPECT_EQ(expected({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", bad}}), "") << "'" << bad << "'";
}

TEST(LaunchEnvironment, RanksCountFromZeroAndSlurmsOnlyInAStep) {
  EXPECT_EQ(rank_in({}), "");
  EXPECT_EQ(rank_in({{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "4"}}), "0 OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(rank_in({{"PMIX_RANK", "4"}}), "4 PMIX_RANK");
  EXPECT_EQ(rank_in({{"FARANDOLE_RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}), "1 FARANDOLE_RANK");
  EXPECT_EQ(rank_in({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}}), "")
      << "sbatch sets it in the batch script";
  EXPECT_EQ(rank_in({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}, {"SLURM_PROCID", "3"}}),
            "3 SLURM_PROCID");
}

TEST(LaunchEnvironment, AWorldOfOneSaysWhatDiffersAndWhatToDo) {
  const auto batch = world_of_one_message({4, "SLURM_NTASKS"}, environment_of({{"SLURM_JOB_ID", "7"}}));
  EXPECT_THAT(batch, AllOf(HasSubstr("a world of 1 rank, but SLURM_NTASKS says 4"),
                           HasSubstr("srun --mpi=pmix"), HasSubstr("farandole run -n 4 -- ")));
  const auto step = world_of_one_message({2, "SLURM_STEP_NUM_TASKS"}, environment_of({{"PMIX_RANK", "0"}}));
  EXPECT_THAT(step, AllOf(HasSubstr("SLURM_STEP_NUM_TASKS says 2"),
                          HasSubstr("MPI library of this program does not use it")));
  const auto other = world_of_one_message({3, "PMI_SIZE"}, environment_of({}));
  EXPECT_THAT(other, AllOf(HasSubstr("PMI_SIZE says 3"), HasSubstr("the mpirun of another MPI")));
  const auto own = world_of_one_message({2, "FARANDOLE_SIZE"}, environment_of({}));
  EXPECT_THAT(own, HasSubstr("without MPI; add --starter mpirun"));
  for (const auto& text : {batch, step, other, own}) EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(LaunchEnvironment, AJobOfSeveralProgramsIsRefusedWithTheRemedy) {
  EXPECT_FALSE(mixed_world_message(environment_of({{"OMPI_NUM_APP_CTX", "1"}})));
  EXPECT_FALSE(mixed_world_message(environment_of({})));
  const auto message = mixed_world_message(environment_of({{"OMPI_NUM_APP_CTX", "2"}}));
  ASSERT_TRUE(message);
  EXPECT_THAT(*message, AllOf(HasSubstr("2 programs"), HasSubstr("an mpirun of its own")));
}

TEST(LaunchEnvironment, KnowsWhoTellsMpiOfTheOtherRanks) {
  EXPECT_FALSE(has_process_manager(
      environment_of({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"PMIX_RANK", ""}})));
  for (const char* variable : {"PMIX_RANK", "PMI_FD", "OMPI_COMM_WORLD_SIZE"})
    EXPECT_TRUE(has_process_manager(environment_of({{variable, "1"}}))) << variable;
}

}  // namespace
}  // namespace farandole
