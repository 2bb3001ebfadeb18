#include "farandole/launch/slurm/job_state.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <string>

#include "environment_of.h"

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::minutes patience(1);

// A shell script in PATH answers for Slurm: job 7 has the name "train2", job 8 the name "my train".
class JobStates : public ::testing::Test {
 protected:
  JobStates() {
    std::ofstream(programs_ / "scontrol")
        << "#!/bin/bash\n"
           "case \"$2 $3\" in\n"
           "'config ') echo 'ClusterName             = c1' ;;\n"
           "'job 7') printf 'JobId=7 JobName=train2\\n   JobState=RUNNING Reason=None Restarts=3\\n' ;;\n"
           "'job 8') printf 'JobId=8 JobName=my train\\n   JobState=PENDING Reason=Priority Restarts=0\\n' ;;\n"
           "'job 9') echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;\n"
           "*) echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1 ;;\n"
           "esac\n";
    fs::permissions(programs_ / "scontrol", fs::perms::owner_all);
    ::setenv("PATH", (programs_.path().string() + ":" + path_).c_str(), 1);
  }
  ~JobStates() override { ::setenv("PATH", path_.c_str(), 1); }

  static std::string state_of(const std::map<std::string, std::string>& slurm) {
    const auto state = ask_for_recorded_job(slurm, patience);
    return state.empty() ? "" : state.at("JobState");
  }

 private:
  const TemporaryFolder programs_;
  const std::string path_ = std::getenv("PATH");
};

TEST_F(JobStates, AreTold) {
  EXPECT_EQ(ask_for_job_state("7", patience).at("Reason"), "None");
  EXPECT_EQ(restarts_of(ask_for_job_state("7", patience)), 3);
  EXPECT_FALSE(ask_for_job("7", patience).gone);
  EXPECT_TRUE(ask_for_job("9", patience).gone);
  EXPECT_FALSE(ask_for_job("10", patience).gone) << "Slurm does not answer";
  EXPECT_TRUE(ask_for_job_state("10", patience).empty());
}

TEST_F(JobStates, OfAnotherJobWithTheSameNumberAreNotTold) {
  EXPECT_EQ(state_of({{"JOB_ID", "7"}, {"JOB_NAME", "train2"}}), "RUNNING");
  EXPECT_EQ(state_of({{"JOB_ID", "7"}, {"JOB_NAME", "train"}}), "")
      << "the beginning of a name is another name";
  EXPECT_EQ(state_of({{"JOB_ID", "8"}, {"JOB_NAME", "my train"}}), "PENDING");
  EXPECT_EQ(state_of({{"JOB_ID", "8"}, {"JOB_NAME", "my"}}), "");
  EXPECT_EQ(state_of({{"JOB_ID", "7"}}), "") << "without a name, the number may belong to any job";
  EXPECT_EQ(state_of({{"JOB_NAME", "train2"}}), "") << "not a Slurm job";
}

TEST_F(JobStates, OfAnotherClusterAreNotTold) {
  EXPECT_EQ(state_of({{"JOB_ID", "7"}, {"JOB_NAME", "train2"}, {"CLUSTER_NAME", "c1"}}), "RUNNING");
  EXPECT_EQ(state_of({{"JOB_ID", "7"}, {"JOB_NAME", "train2"}, {"CLUSTER_NAME", "c2"}}), "");
}

TEST(JobState, IsReadFromScontrol) {
  const auto state = job_state_of(
      "JobId=3 JobName=x\n   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)\n"
      "   TimeLimit=00:01:00 EndTime=2026-11-21T19:00:00 ExitCode=0:15\n");
  EXPECT_EQ(state.at("JobState"), "TIMEOUT");
  EXPECT_EQ(state.at("TimeLimit"), "00:01:00");
  EXPECT_NEAR(std::stod(state.at("EndUnix")), 1795287600, 26 * 3600);
  EXPECT_TRUE(job_state_of("slurm_load_jobs error: Invalid job id specified").empty());
}

TEST(OwnSlurmJob, IsInTheEnvironment) {
  EXPECT_TRUE(slurm_facts(environment_of({{"SLURM_JOB_PARTITION", "p"}})).empty()) << "no job";
  EXPECT_EQ(
      slurm_facts(environment_of({{"SLURM_JOB_ID", "3"}, {"SLURM_JOB_END_TIME", "9"}})).at("JOB_END_TIME"),
      "9");
  const auto job = [](const Variables& variables) { return own_slurm_job(environment_of(variables)); };
  EXPECT_EQ(job({}), "");
  EXPECT_EQ(job({{"SLURM_JOB_ID", "7"}}), "7");
  EXPECT_EQ(job({{"SLURM_JOB_ID", "7"}, {"SLURM_ARRAY_JOB_ID", "7"}, {"SLURM_ARRAY_TASK_ID", "3"}}), "7_3")
      << "the task of an array is not the array";
}

}  // namespace
}  // namespace farandole
