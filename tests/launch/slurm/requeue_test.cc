#include "farandole/launch/slurm/requeue.h"

#include <gmock/gmock.h>

#include "farandole/launch/records/job_record.h"
#include "farandole/launch/slurm/job_state.h"

namespace farandole {
namespace {

using testing::HasSubstr;
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
