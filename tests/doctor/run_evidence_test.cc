#include "farandole/doctor/run_evidence.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/records/rank_record.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;
using namespace ::testing;

class RunEvidenceTest : public testing::Test {
 protected:
  RunEvidenceTest() {
    std::ofstream(folder_ / "run.json") << R"({"ranks": 2, "exit_code": 0, "hosts": ["a", "b"]})";
  }
  RunEvidence read() const { return read_run_evidence(folder_.path()); }
  TimelineOptions recorder_of(int rank, int world_size, const std::string& host = "") const {
    return {.file = folder_ / ("recorder/rank-000" + std::to_string(rank) + ".ftl"),
            .recorder_bytes = 1 << 20,
            .rank = rank,
            .world_size = world_size,
            .host = host};
  }

  const TemporaryFolder folder_;
};

// The run was resumed on fewer ranks, without a launcher that records the time.
TEST_F(RunEvidenceTest, DoesWithoutTheRecordersOfAnEarlierStart) {
  for (const int world_size : {3, 2})
    for (int rank = 0; rank < world_size; ++rank) {
      const Timeline timeline(recorder_of(rank, world_size));
    }
  const auto run = read();
  EXPECT_THAT(run.troubles, ElementsAre("1 flight recorder is of an earlier start: left out"));
  ASSERT_EQ(run.ranks.size(), 2U);
  for (const auto& rank : run.ranks) EXPECT_TRUE(rank.recorder && rank.recorder->world_size == 2);
}

// The job went on after these ranks, for example with a restart of them, and was ended two hours later.
TEST_F(RunEvidenceTest, DoesNotTakeALaterEndOfTheJobForThatOfTheRanks) {
  constexpr std::int64_t end_s = 1'800'000'000;
  JobRecord job{.ranks = 2, .host = "elsewhere", .end_ns = end_s * 1'000'000'000};
  job.slurm = {{"JOB_ID", "7"}, {"JOB_NAME", "digits"}};
  job.job_state = {{"JobState", "RUNNING"}};
  fs::create_directory(folder_ / "launch");
  write_job(folder_ / "launch/job.json", job);
  fs::create_directory(folder_ / "programs");
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", ((folder_ / "programs").string() + ":" + path).c_str(), 1);
  for (const auto& [later_s, state] : {std::pair(10, "TIMEOUT"), std::pair(7200, "RUNNING")}) {
    const std::time_t end = end_s + later_s;
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", std::localtime(&end));
    std::ofstream(folder_ / "programs/scontrol")
        << "#!/bin/sh\necho JobId=7 JobName=digits\necho JobState=TIMEOUT EndTime=" << text << "\n";
    fs::permissions(folder_ / "programs/scontrol", fs::perms::owner_all);
    EXPECT_EQ(read().slurm_state.at("JobState"), state);
  }
  ::setenv("PATH", path.c_str(), 1);
}

// The next start hangs, or was killed together with its launcher.
TEST_F(RunEvidenceTest, DoesWithoutTheLaunchRecordsOfAnEarlierStart) {
  fs::create_directory(folder_ / "launch");
  for (const bool earlier : {false, true}) {
    RankRecord killed{.signal = SIGKILL, .start_ns = real_time_ns(), .launch = "first"};
    if (earlier) killed.time_ns = real_time_ns();
    killed.host = "node1";
    const Timeline timeline(recorder_of(0, 1, killed.host));
    if (!earlier) killed.time_ns = real_time_ns();
    ASSERT_TRUE(write_record(folder_ / "launch", killed));
    const auto run = read();
    EXPECT_EQ(run.ranks.at(0).end.has_value(), !earlier);
    if (earlier)
      EXPECT_THAT(run.troubles,
                  ElementsAre("the launcher's records belong to an earlier start and are left out"));
    else
      EXPECT_THAT(run.troubles, IsEmpty());
  }
}

// A launcher that cannot be read is not one that was killed. Nothing is missed that a run may lack.
TEST_F(RunEvidenceTest, TellsAStartWithoutALaunchersRecordFromADamagedRecord) {
  EXPECT_THAT(read().troubles, IsEmpty());
  EXPECT_EQ(read().ranks.size(), 2U);
  fs::create_directory(folder_ / "launch");
  EXPECT_FALSE(read().start_unrecorded) << "no launcher";
  RankRecord rank{.launch = "second"};
  rank.start_ns = rank.time_ns = real_time_ns();
  ASSERT_TRUE(write_record(folder_ / "launch", rank));
  EXPECT_TRUE(read().start_unrecorded) << "no record of the launcher";
  JobRecord job{.launch = "first"};
  ASSERT_TRUE(write_job(folder_ / "launch/job.json", job));
  EXPECT_TRUE(read().start_unrecorded) << "a record of another start";
  job.launch = "second";
  ASSERT_TRUE(write_job(folder_ / "launch/job.json", job));
  EXPECT_FALSE(read().start_unrecorded);
  std::ofstream(folder_ / "launch/job.json") << "{";
  EXPECT_FALSE(read().start_unrecorded) << "a damaged record";
}

// If a rank dies in an evaluation or in an epoch's checkpoint, its step is that of its last record.
TEST_F(RunEvidenceTest, KnowsTheLastStepOfARankThatDiedOutsideOfOne) {
  for (const std::int64_t last : {-1, 0, 7, 30'000}) {
    {
      Timeline timeline(recorder_of(0, 2));
      for (std::int64_t step = 0; step <= last; ++step) {
        timeline.set_step(step);
        timeline.span(Category::step, "step", now_ns(), now_ns());
      }
      timeline.set_step(-1);
      timeline.span(Category::other, "evaluation", now_ns(), now_ns());
    }
    EXPECT_EQ(read().ranks.at(0).recorder.value().step, last);
  }
}

TEST_F(RunEvidenceTest, KnowsSinceWhenTheLossIsNotFinite) {
  std::ofstream metrics(folder_ / "metrics.jsonl");
  const auto log = [&](const std::string& rest) {
    static int step = 0;
    metrics << "{\"step\":" << step++ << ',' << rest << "}\n" << std::flush;
    return read().nonfinite_since;
  };
  EXPECT_EQ(log("\"loss\":null"), 0);
  EXPECT_EQ(log("\"loss\":2.5"), std::nullopt);
  EXPECT_EQ(log("\"loss\":null"), 2);
  EXPECT_EQ(log("\"loss\":null"), 2);
  EXPECT_EQ(log("\"lr\":1"), 2);
}

// The other files are still read.
TEST_F(RunEvidenceTest, NamesAFolderThatIsNone) {
  std::ofstream(folder_ / "recorder") << "x";
  fs::create_symlink("nowhere", folder_ / "logs");
  fs::create_symlink("launch", folder_ / "launch");  // in a circle
  const auto run = read();
  EXPECT_THAT(run.troubles, ElementsAre(HasSubstr("launch/job.json: Too many levels of symbolic links"),
                                        HasSubstr("launch cannot be read: Too many levels of symbolic links"),
                                        HasSubstr("recorder cannot be read: Not a directory"),
                                        HasSubstr("logs cannot be read: No such file or directory")));
  EXPECT_EQ(run.ranks.size(), 2U);
}

// People give the doctor what they hold when a job hangs.
TEST_F(RunEvidenceTest, NamesFilesOfOtherTools) {
  const TemporaryFolder dump;
  std::ofstream(dump / "nccl_trace_rank_0") << "\x80\x02}q\x01X\x09pg_config";
  for (const auto& path : {dump.path(), dump / "nccl_trace_rank_0"}) {
    EXPECT_THAT(
        [&] { read_run_evidence(path); },
        ThrowsMessage<CorruptInput>(AllOf(HasSubstr("flight recorder"), HasSubstr("`torchfrtrace "))));
  }
}

TEST_F(RunEvidenceTest, NamesAFolderThatIsNotForThisUser) {
  { const Timeline timeline(recorder_of(0, 1)); }
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(folder_ / "run.json", fs::perms(0644));
  fs::permissions(folder_ / "recorder", fs::perms::none);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(1);
    int code = 2;
    try {
      const auto run = read();
      const bool named =
          run.troubles.size() == 1 &&
          run.troubles[0].find("recorder cannot be read: Permission denied") != std::string::npos;
      code = named && run.ranks.size() == 2 ? 0 : 3;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  fs::permissions(folder_ / "recorder", fs::perms::owner_all);
  EXPECT_EQ(status, 0);
}

// The processes of the other host cannot be seen. A lease that its rank 0 has just left looks young.
TEST_F(RunEvidenceTest, BelievesALeaseOfAnotherHostOnlyIfItBeats) {
  const auto lease = folder_ / "lease-0001.json";
  std::ofstream(lease).put(' ');
  struct stat status {};
  ASSERT_EQ(::stat(lease.c_str(), &status), 0);
  std::ofstream(lease) << R"({"host": "elsewhere", "boot": "other", "process": 7, "inode": )" << status.st_ino
                       << "}";
  EXPECT_FALSE(read().lease_alive);
  std::jthread beats([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      ::utimensat(AT_FDCWD, lease.c_str(), nullptr, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_TRUE(read().lease_alive);
}

}  // namespace
}  // namespace farandole
