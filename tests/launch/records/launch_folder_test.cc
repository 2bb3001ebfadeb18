#include "farandole/launch/records/launch_folder.h"

#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment_of.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

JobRecord job_with(int exit_code) {
  JobRecord job{.launch = "1-node1-7", .ranks = 2};
  job.program = {"a", "b \xff"};
  job.slurm = {{"JOB_ID", "5"}};
  job.start_ns = 1;
  job.end_ns = 2;
  job.exit_code = exit_code;
  job.signals = {{SIGTERM, 3}};
  job.job_state = {{"JobState", "TIMEOUT"}};
  job.free_bytes = 10;
  return job;
}

RankRecord rank_with(int rank, int exit_code) {
  return {.rank = rank, .exit_code = exit_code, .launch = "1-node1-7", .last_words = "so it goes\n"};
}

TEST(LaunchedRun, IsFoundWhereTheUserNamedIt) {
  const auto folder = [](std::vector<std::string> program, const fs::path& logs = "",
                         Variables variables = {}) {
    return find_launched_run(program, "", logs, environment_of(std::move(variables))).folder;
  };
  const auto here = fs::current_path();
  EXPECT_EQ(folder({"farandole", "train", "--run-dir", "r"}), here / "r");
  EXPECT_EQ(folder({"/x/farandole-train", "--run-dir=r", "--steps", "1", "--run-dir=s"}), here / "s");
  EXPECT_EQ(folder({"/x/farandole", "train", "--run-dir"}), "");
  EXPECT_EQ(folder({"farandole", "bench", "--run-dir", "r"}), "");
  EXPECT_EQ(folder({"python", "--run-dir", "r"}), "") << "another program's option";
  EXPECT_EQ(folder({"python"}, "", {{"FARANDOLE_RUN_DIR", "/q"}}), "/q");
  EXPECT_EQ(folder({"python"}, "/p/run/logs/", {{"FARANDOLE_RUN_DIR", "/q"}}), "/p/run");
  EXPECT_EQ(folder({"python"}, "/p/run/output"), "");
  EXPECT_EQ(folder({}), "");
  EXPECT_TRUE(find_launched_run({"a"}, "", "/p/logs", environment_of({})).logged);
  EXPECT_EQ(command_of({"/f/bin/farandole", "fit"}), "fit");
  EXPECT_EQ(command_of({"farandole-train"}), "train");
  EXPECT_EQ(command_of({"./farandole.sh", "train"}), "");
  EXPECT_EQ(find_launched_run({"farandole", "fit", "--run-dir", "r"}, "", "", environment_of({})).folder,
            std::filesystem::absolute("r"));
  EXPECT_EQ(
      find_launched_run({"farandole", "fit", "--store", "s", "--run=a"}, "", "", environment_of({})).folder,
      std::filesystem::absolute("s/a"));
  EXPECT_FALSE(find_launched_run({"farandole-train", "--run-dir", "r"}, "", "", environment_of({})).logged);
}

TEST(LaunchedRun, IsOneAlone) {
  EXPECT_EQ(
      find_launched_run({"farandole", "train", "--run-dir", "a/../r/"}, "r", "", environment_of({})).folder,
      fs::current_path() / "r");
  EXPECT_EQ(find_launched_run({"python", "--run-dir", "q"}, "r", "", environment_of({})).folder,
            fs::current_path() / "r");
  EXPECT_THROW(find_launched_run({"farandole", "train", "--run-dir", "q"}, "r", "", environment_of({})),
               UserError);
}

TEST(LaunchFolder, KeepsRecordsOfAJobAndItsRanks) {
  const TemporaryFolder folder;
  LaunchFolder launch({folder.path() / "run", true});
  launch.begin(job_with(0));
  ASSERT_TRUE(read_job(folder.path() / "run/launch/job.json"));
  launch.end(rank_with(1, 3));
  launch.end(job_with(3), {rank_with(0, 0), rank_with(1, 9)});
  const auto ranks = read_records(folder.path() / "run/launch");
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1].exit_code, 3) << "the supervisor's own";
  EXPECT_EQ(ranks[1].last_words, "so it goes\n");
  const auto job = read_job(folder.path() / "run/launch/job.json");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->exit_code, 3);
  EXPECT_EQ(job->program.size(), 2u);
  EXPECT_EQ(job->signals.at(0).number, SIGTERM);
  EXPECT_EQ(job->job_state.at("JobState"), "TIMEOUT");
  EXPECT_EQ(job->slurm.at("JOB_ID"), "5");
  EXPECT_EQ(job->free_bytes, 10);
  EXPECT_GT(launch.free_bytes().value_or(0), 0);
}

TEST(LaunchFolder, LeavesNothingOfARefusal) {
  const TemporaryFolder folder;
  for (const int code : {64, 65, 0}) {
    LaunchFolder launch({folder.path() / "run", false});
    launch.begin(job_with(code));
    launch.end(rank_with(0, code));
    launch.end(job_with(code), {rank_with(0, code)});
    EXPECT_FALSE(fs::exists(folder.path() / "run")) << code;
  }
  LaunchFolder launch({folder.path() / "run", false});
  fs::create_directories(folder.path() / "run/recorder");
  launch.end(rank_with(0, 65));
  EXPECT_TRUE(fs::exists(folder.path() / "run/launch/rank-0000.json")) << "it had begun to run";
  LaunchFolder failing({folder.path() / "other", false});
  failing.end(rank_with(0, 1));
  EXPECT_TRUE(fs::exists(folder.path() / "other/launch/rank-0000.json"));
}

TEST(LaunchFolder, WritesTheBeginWhenTheRanksHaveBegun) {
  const TemporaryFolder folder;
  const auto job = folder.path() / "run/launch/job.json";
  LaunchFolder launch({folder.path() / "run", false});
  EXPECT_FALSE(launch.begin(job_with(0)));
  EXPECT_FALSE(fs::exists(job));
  fs::create_directories(folder.path() / "run/recorder");
  EXPECT_TRUE(launch.begin(job_with(0)));
  EXPECT_TRUE(fs::exists(job));
}

TEST(LaunchFolder, WritesNothingWhereItCannot) {
  for (const char* place : {"", "/dev/null/run", "/proc/run"}) {
    LaunchFolder launch({place, true});
    launch.begin(job_with(1));
    launch.end(rank_with(0, 1));
    launch.end(job_with(1), {rank_with(0, 1)});
  }
  EXPECT_FALSE(LaunchFolder(LaunchedRun{}).free_bytes());
}

TEST(JobRecord, RefusesWhatIsNoRecord) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_job(folder / "missing.json"));
  for (const char* text : {"", "{}", "[1]", "{\"launch\": 3", "{\"launch\": 3}"}) {
    std::ofstream(folder / "job.json") << text;
    EXPECT_THROW(read_job(folder / "job.json"), CorruptInput) << text;
  }
}

}  // namespace
}  // namespace farandole
