#include "farandole/launch/restart_policy.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>

#include "environment_of.h"

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

struct RequeueCase {
  int exit_code = 75;
  Variables job_state, variables;
  // What is expected; requeues are not at once and not by Slurm.
  bool requeue = false, at_once = false, by_slurm = false;
  std::string message = {};  // A part of it; "": there is none.
};

RequeueDecision decide(const RequeueCase& one) {
  auto variables = one.variables;
  variables["SLURM_JOB_ID"] = "7";
  return decide_requeue({one.exit_code, false, "", one.job_state}, 2, environment_of(variables));
}

TEST(Requeue, FollowsASavedCheckpoint) {
  const Variables running = {{"JobState", "RUNNING"}, {"Reason", "None"}};
  const auto completing = [](const char* name, const char* value) {
    return Variables{{"JobState", "COMPLETING"}, {name, value}};
  };
  const auto restarted = [](const char* count) { return Variables{{"SLURM_RESTART_COUNT", count}}; };
  const std::string preempted = "2026-11-23T18:44:16";
  std::vector<RequeueCase> cases = {
      {75,
       running,
       {},
       true,
       false,
       false,
       "job 7 is requeued and continues from its checkpoint (restart 1 of 2)"},
      {75, completing("Reason", "TimeLimit"), {}, true, true, false, "restart 1 of 2"},
      {75, {{"JobState", "RUNNING"}, {"PreemptTime", preempted}}, {}, true, false, false, "restart 1 of 2"},
      {75, completing("PreemptTime", preempted.c_str()), {}, true, true, false, "restart 1 of 2"},
      {75, running, restarted("1"), true, false, false, "restart 2 of 2"},
      {75, running, restarted("2"), false, false, false, "Slurm has started it again 2 times (--requeue 2)"}};
  for (const int code : {0, 1, 64, 65, 70, 137})
    cases.push_back({code, running, {}, false, false, false, ""});
  for (const auto& time : {std::string("None"), preempted}) {  // Slurm has requeued the job itself.
    const Variables state = {{"JobState", "COMPLETING"}, {"PreemptTime", time}, {"Restarts", "2"}};
    cases.push_back({75, state, restarted("1"), false, false, true, "Slurm has requeued job 7"});
  }
  for (const char* state : {"COMPLETING", "CANCELLED", "PREEMPTED", "PENDING"})  // Slurm has ended it.
    cases.push_back({75,
                     {{"JobState", state}, {"Reason", "None"}, {"PreemptTime", "None"}, {"Restarts", "0"}},
                     {},
                     false,
                     false,
                     false,
                     state});
  for (const auto& one : cases) {
    const auto decision = decide(one);
    EXPECT_EQ(decision.requeue, one.requeue) << one.message;
    EXPECT_EQ(decision.at_once, one.at_once) << one.message;
    EXPECT_EQ(decision.by_slurm, one.by_slurm) << one.message;
    EXPECT_THAT(decision.message, HasSubstr(one.message));
    EXPECT_EQ(decision.message.empty(), one.message.empty());
  }
}

TEST(Requeue, NamesATimeLimitThatIsTooShort) {
  const auto message = [](const char* begin, const char* end) {
    return decide({75,
                   {{"JobState", "RUNNING"}},
                   {{"SLURM_JOB_START_TIME", begin}, {"SLURM_JOB_END_TIME", end}}})
        .message;
  };
  EXPECT_THAT(message("1800000000", "1800000120"), HasSubstr("its time limit of 120 s"));
  for (const auto& [begin, end] : {std::pair("1800000000", "1800003600"),
                                   {"1800000000", ""},
                                   {"", "1800000120"},
                                   {"1800000120", "1800000000"}})
    EXPECT_THAT(message(begin, end), testing::EndsWith("(restart 1 of 2)")) << begin << " " << end;
}

TEST(Requeue, FollowsSilentHosts) {
  JobEnd end{137, false, "", {{"JobState", "RUNNING"}}};
  EXPECT_FALSE(decide_requeue(end, 2, environment_of({})).requeue);
  end.unanswered = true;
  EXPECT_TRUE(decide_requeue(end, 2, environment_of({})).requeue);
  EXPECT_FALSE(decide_requeue(end, 0, environment_of({})).requeue);
}

}  // namespace
}  // namespace farandole
