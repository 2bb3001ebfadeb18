#include "farandole/launch/restart_policy.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/run/run_files.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/slurm/job_state.h"
#include "farandole/timeline/run_timeline.h"

namespace farandole {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(RestartPolicy, StartsAgainUpToTheLimit) {
  RestartPolicy policy(2);
  EXPECT_EQ(policy.decide({137, false, ""}).message, "restart 1 of 2");
  EXPECT_TRUE(policy.decide({70, false, ""}).restart);
  const auto last = policy.decide({137, false, ""});
  EXPECT_FALSE(last.restart);
  EXPECT_TRUE(last.diagnose);
  EXPECT_THAT(last.message, HasSubstr("started again 2 times"));
  EXPECT_FALSE(RestartPolicy(0).decide({137, false, ""}).restart);
}

TEST(RestartPolicy, LeavesJobsThatAreNotToStartAgain) {
  for (const int code : {0, 64, 65, 75})
    EXPECT_FALSE(RestartPolicy(9).decide({code, false, ""}).restart) << code;
  EXPECT_FALSE(RestartPolicy(9).decide({143, true, ""}).restart);
}

TEST(RestartPolicy, EndsWhatFailsThreeTimesAtTheSameStep) {
  const TemporaryFolder folder;
  const auto fails = [&](RestartPolicy& policy, int code, int step) {
    write(folder / "metrics.jsonl", "{\"step\":" + std::to_string(step) + "}\n");
    return policy.decide({code, false, folder.path()});
  };
  RestartPolicy policy(99);
  EXPECT_TRUE(fails(policy, 1, 4).restart);
  EXPECT_TRUE(fails(policy, 1, 4).restart);
  EXPECT_TRUE(fails(policy, 1, 6).restart);
  EXPECT_TRUE(fails(policy, 137, 6).restart);
  EXPECT_TRUE(fails(policy, 1, 6).restart);
  EXPECT_TRUE(fails(policy, 1, 7).restart) << "rank 0 may be one step ahead of the rank that fails";
  const auto last = fails(policy, 1, 6);
  EXPECT_FALSE(last.restart);
  EXPECT_THAT(last.message, HasSubstr("3 times in a row with exit code 1 at step 6"));
}

TEST(RestartPolicy, EndsWhatFailsThreeTimesAtItsStart) {
  const TemporaryFolder folder;
  for (const auto& run : {folder.path(), folder / "absent", fs::path()}) {
    RestartPolicy policy(99);
    EXPECT_TRUE(policy.decide({1, false, run}).restart);
    EXPECT_TRUE(policy.decide({1, false, run}).restart);
    const auto last = policy.decide({1, false, run});
    EXPECT_FALSE(last.restart);
    EXPECT_TRUE(last.diagnose);
    EXPECT_THAT(last.message, HasSubstr("3 times in a row with exit code 1 at step 0"));
  }
}

TEST(RestartPolicy, GoesOnWithLongJobsWhoseProgressIsUnknown) {
  const TemporaryFolder folder;
  RestartPolicy policy(99);
  JobEnd end{137, false, folder.path()};
  end.lasted = 2 * RestartPolicy::short_job;
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(policy.decide(end).restart);
}

// With --log-steps 1000, kills at steps 1400, 1700 and 1900 leave the same metrics and checkpoints.
TEST(RestartPolicy, SeesTheProgressBetweenLoggedSteps) {
  const TemporaryFolder folder;
  write(folder / "metrics.jsonl", "{\"step\":1000}\n");
  write(folder / "checkpoints/step-00001000.h5", "");
  RestartPolicy policy(99);
  const auto killed_at = [&](int step) {
    fs::remove(recorder_file(folder.path(), 0));  // each start has its own
    Timeline(run_timeline(folder.path())).set_step(step);
    return policy.decide({137, false, folder.path()});
  };
  for (const int step : {1400, 1700, 1900, 1400, 1400}) EXPECT_TRUE(killed_at(step).restart);
  const auto last = killed_at(1401);
  EXPECT_FALSE(last.restart);
  EXPECT_THAT(last.message, HasSubstr("exit code 137 at step 1401, checkpoint step-00001000.h5"));
}

TEST(RestartPolicy, TakesANewCheckpointForProgress) {
  const TemporaryFolder folder;
  RestartPolicy policy(99);
  for (const int step : {4, 5, 100'000'000}) {
    write(folder / "metrics.jsonl", "{\"step\":4}\n");
    write(folder / "checkpoints" / fmt::format("step-{:08}.h5", step), "");
    EXPECT_TRUE(policy.decide({137, false, folder.path()}).restart);
  }
}

TEST(RestartPolicy, ReadsProgressOfDamagedRuns) {
  const TemporaryFolder folder;
  write(folder / "checkpoints/step-00000010.h5", "");
  write(folder / "checkpoints/.step-00000099.h5.host.1.tmp", "");
  for (const auto* text : {"", "\n", "[]\n", "{\"step\":\"x\"}\n", "{\"step\":1.5}\n", "\xff\xfe\n"}) {
    write(folder / "metrics.jsonl", text);
    RestartPolicy policy(99);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(policy.decide({137, false, folder.path()}).restart);
    EXPECT_THAT(policy.decide({137, false, folder.path()}).message,
                HasSubstr("at step 10, checkpoint step-00000010.h5"))
        << text;
  }
}

using Facts = std::map<std::string, std::string>;

RequeueDecision decide(int exit_code, const Facts& job_state, const Facts& variables = {}) {
  auto all = variables;
  all["SLURM_JOB_ID"] = "7";
  return decide_requeue({exit_code, false, "", job_state}, 2, [&](const char* name) {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  });
}

TEST(OwnSlurmJob, OfATaskOfAnArrayIsNotTheArray) {
  const auto job = [](const Facts& variables) {
    return own_slurm_job([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(job({}), "");
  EXPECT_EQ(job({{"SLURM_JOB_ID", "7"}}), "7");
  EXPECT_EQ(job({{"SLURM_JOB_ID", "7"}, {"SLURM_ARRAY_JOB_ID", "7"}, {"SLURM_ARRAY_TASK_ID", "3"}}), "7_3");
}

TEST(Requeue, FollowsASavedCheckpoint) {
  const auto yes = decide(75, {{"JobState", "RUNNING"}, {"Reason", "None"}});
  EXPECT_TRUE(yes.requeue);
  EXPECT_FALSE(yes.at_once);
  EXPECT_THAT(yes.message, HasSubstr("job 7 is requeued and continues from its checkpoint (restart 1 of 2)"));
  for (const int code : {0, 1, 64, 65, 70, 137}) {
    const auto no = decide(code, {{"JobState", "RUNNING"}});
    EXPECT_FALSE(no.requeue) << code;
    EXPECT_EQ(no.message, "") << code;
  }
}

TEST(Requeue, NamesATimeLimitThatIsTooShort) {
  const Facts running = {{"JobState", "RUNNING"}};
  const auto message = [&](const char* begin, const char* end) {
    return decide(75, running, {{"SLURM_JOB_START_TIME", begin}, {"SLURM_JOB_END_TIME", end}}).message;
  };
  EXPECT_THAT(message("1800000000", "1800000120"), HasSubstr("its time limit of 120 s"));
  for (const auto& [begin, end] : {std::pair("1800000000", "1800003600"),
                                   {"1800000000", ""},
                                   {"", "1800000120"},
                                   {"1800000120", "1800000000"}})
    EXPECT_THAT(message(begin, end), testing::EndsWith("(restart 1 of 2)")) << begin << " " << end;
}

TEST(Requeue, FollowsSilentHosts) {
  JobEnd end;
  end.exit_code = 137;
  end.job_state = {{"JobState", "RUNNING"}};
  const Environment none = [](const char*) -> const char* { return nullptr; };
  EXPECT_FALSE(decide_requeue(end, 2, none).requeue);
  end.unanswered = true;
  EXPECT_TRUE(decide_requeue(end, 2, none).requeue);
  EXPECT_FALSE(decide_requeue(end, 0, none).requeue);
}

TEST(Requeue, ComesAtOnceAfterTheTimeLimit) {
  const auto late = decide(75, {{"JobState", "COMPLETING"}, {"Reason", "TimeLimit"}});
  EXPECT_TRUE(late.requeue);
  EXPECT_TRUE(late.at_once);
}

TEST(Requeue, FollowsAPreemption) {
  const auto graceful = decide(75, {{"JobState", "RUNNING"}, {"PreemptTime", "2026-11-23T18:44:16"}});
  EXPECT_TRUE(graceful.requeue);
  EXPECT_FALSE(graceful.at_once);
  const auto abrupt = decide(75, {{"JobState", "COMPLETING"}, {"PreemptTime", "2026-11-23T18:44:16"}});
  EXPECT_TRUE(abrupt.requeue);
  EXPECT_TRUE(abrupt.at_once);
}

TEST(Requeue, IsLeftToSlurmIfItHasRequeuedTheJob) {
  for (const char* preempted : {"None", "2026-11-23T18:44:16"}) {
    const Facts state = {{"JobState", "COMPLETING"}, {"PreemptTime", preempted}, {"Restarts", "2"}};
    const auto by_slurm = decide(75, state, {{"SLURM_RESTART_COUNT", "1"}});
    EXPECT_FALSE(by_slurm.requeue);
    EXPECT_TRUE(by_slurm.by_slurm);
    EXPECT_THAT(by_slurm.message, HasSubstr("Slurm has requeued job 7"));
    EXPECT_FALSE(decide(75, state, {{"SLURM_RESTART_COUNT", "2"}}).by_slurm);
  }
}

TEST(Requeue, IsNotForJobsThatSlurmHasEnded) {
  for (const char* state : {"COMPLETING", "CANCELLED", "PREEMPTED", "PENDING"}) {
    const auto no =
        decide(75, {{"JobState", state}, {"Reason", "None"}, {"PreemptTime", "None"}, {"Restarts", "0"}});
    EXPECT_FALSE(no.requeue || no.by_slurm) << state;
    EXPECT_THAT(no.message, HasSubstr(state));
  }
}

TEST(Requeue, HasALimit) {
  const Facts running = {{"JobState", "RUNNING"}};
  EXPECT_TRUE(decide(75, running, {{"SLURM_RESTART_COUNT", "1"}}).requeue);
  const auto no = decide(75, running, {{"SLURM_RESTART_COUNT", "2"}});
  EXPECT_FALSE(no.requeue);
  EXPECT_THAT(no.message, HasSubstr("Slurm has started it again 2 times (--requeue 2)"));
}

}  // namespace
}  // namespace farandole
