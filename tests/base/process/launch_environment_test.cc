#include "farandole/base/process/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment from(const Variables& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

// "4 SLURM_NTASKS", or "" for nothing.
std::string expected(const Variables& variables) {
  const auto size = expected_world_size(from(variables));
  return size ? std::to_string(size->value) + " " + size->variable : "";
}

std::string rank_in(const Variables& variables) {
  const auto rank = launched_rank(from(variables));
  return rank ? std::to_string(rank->value) + " " + rank->variable : "";
}

TEST(LaunchEnvironment, NothingIsExpectedOfAPlainProcess) {
  EXPECT_EQ(expected({}), "");
  EXPECT_EQ(rank_in({}), "");
}

TEST(LaunchEnvironment, MpirunCountsBeforeSlurm) {
  const Variables both = {{"OMPI_COMM_WORLD_SIZE", "3"},
                          {"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_NTASKS", "8"}};
  EXPECT_EQ(expected(both), "3 OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(expected({{"PMI_SIZE", "5"}}), "5 PMI_SIZE");
  EXPECT_EQ(expected({{"MV2_COMM_WORLD_SIZE", "6"}, {"PMI_SIZE", "5"}}), "5 PMI_SIZE");
}

TEST(LaunchEnvironment, AStepCountsBeforeItsAllocation) {
  Variables slurm = {
      {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"}};
  EXPECT_EQ(expected(slurm), "2 SLURM_STEP_NUM_TASKS");
  slurm["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(expected(slurm), "1 SLURM_STEP_NUM_TASKS") << "a step of one task is meant to be alone";
  slurm.erase("SLURM_STEP_ID");
  EXPECT_EQ(expected(slurm), "8 SLURM_NTASKS") << "outside of a step its variables are left from elsewhere";
  slurm.erase("SLURM_NTASKS");
  slurm["SLURM_NPROCS"] = "9";
  EXPECT_EQ(expected(slurm), "9 SLURM_NPROCS");
  slurm.erase("SLURM_JOB_ID");
  EXPECT_EQ(expected(slurm), "") << "SLURM_NPROCS alone is a user's habit, no job";
}

TEST(LaunchEnvironment, WhatIsNoPositiveNumberIsNotSet) {
  for (const char* bad : {"", "0", "-2", "4x", " 4", "4(x2)", "99999999999999999999"})
    EXPECT_EQ(expected({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", bad}}), "") << "'" << bad << "'";
}

TEST(LaunchEnvironment, RanksCountFromZeroAndSlurmsOnlyInAStep) {
  EXPECT_EQ(rank_in({{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "4"}}), "0 OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(rank_in({{"PMIX_RANK", "4"}}), "4 PMIX_RANK");
  EXPECT_EQ(rank_in({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}}), "")
      << "sbatch sets it in the batch script";
  EXPECT_EQ(rank_in({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}, {"SLURM_PROCID", "3"}}),
            "3 SLURM_PROCID");
}

TEST(LaunchEnvironment, AWorldOfOneSaysWhatDiffersAndWhatToDo) {
  const auto batch = world_of_one_message({4, "SLURM_NTASKS"}, from({{"SLURM_JOB_ID", "7"}}));
  EXPECT_THAT(batch, AllOf(HasSubstr("a world of 1 rank, but SLURM_NTASKS says 4"),
                           HasSubstr("srun --mpi=pmix"), HasSubstr("farandole run -n 4 -- ")));
  const auto step = world_of_one_message({2, "SLURM_STEP_NUM_TASKS"}, from({{"PMIX_RANK", "0"}}));
  EXPECT_THAT(step, AllOf(HasSubstr("SLURM_STEP_NUM_TASKS says 2"),
                          HasSubstr("MPI library of this program does not use it")));
  const auto other = world_of_one_message({3, "PMI_SIZE"}, from({}));
  EXPECT_THAT(other, AllOf(HasSubstr("PMI_SIZE says 3"), HasSubstr("the mpirun of another MPI")));
  for (const auto& text : {batch, step, other}) EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(LaunchEnvironment, AJobOfSeveralProgramsIsRefusedWithTheRemedy) {
  EXPECT_FALSE(mixed_world_message(from({{"OMPI_NUM_APP_CTX", "1"}})));
  EXPECT_FALSE(mixed_world_message(from({})));
  const auto message = mixed_world_message(from({{"OMPI_NUM_APP_CTX", "2"}}));
  ASSERT_TRUE(message);
  EXPECT_THAT(*message, AllOf(HasSubstr("2 programs"), HasSubstr("an mpirun of its own")));
}

TEST(LaunchEnvironment, KnowsWhoTellsMpiOfTheOtherRanks) {
  EXPECT_FALSE(has_process_manager(from({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"PMIX_RANK", ""}})));
  for (const char* variable : {"PMIX_RANK", "PMI_FD", "OMPI_COMM_WORLD_SIZE"})
    EXPECT_TRUE(has_process_manager(from({{variable, "1"}}))) << variable;
}

}  // namespace
}  // namespace farandole
