// Diagnoses of jobs in which not a rank, but a process above it was killed or stopped.
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/evidence_fixtures.h"

namespace farandole {
namespace {

using testing::Contains;
using testing::HasSubstr;

// The supervisor of rank 1 was killed, and the rank with it. The launcher went on.
TEST(Diagnosis, NamesARankThatWasKilledWithItsSupervisor) {
  auto run = run_of(3);
  for (auto& rank : run.ranks) rank.host = "node1";
  for (const int survivor : {0, 2}) end(run.ranks[static_cast<std::size_t>(survivor)], 70);
  record(run.ranks[1], 5, Category::backward, noon - second);
  auto found = diagnose(run);
  EXPECT_EQ(found.cause, Cause::killed);
  EXPECT_EQ(found.rank, 1);
  EXPECT_THAT(found.verdict,
              HasSubstr("rank 1 on node1 was killed together with its supervisor, so that there "
                        "is no record of its end, in step 12, in backward; ranks 0, 2 ended with "
                        "exit code 70"));
  // mpirun may stop the others before they end by themselves, and one of them too early for its record.
  end(run.ranks[0], 0, SIGTERM, true);
  run.ranks[2].end.reset();
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted) << "nothing tells which rank was first";
  run.ranks[0].log.losses = {"rank 2 (pid 7 on node1) was killed by SIGKILL; rank 0 was in allreduce #5"};
  EXPECT_EQ(diagnose(run).cause, Cause::killed);
  EXPECT_EQ(diagnose(run).rank, 2);
  run.job->signals = {{SIGTERM, noon}};
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted);
  run.job->signals.clear();
  in_slurm(run, {{"JobState", "CANCELLED"}});
  EXPECT_EQ(diagnose(run).cause, Cause::cancelled) << "Slurm kills the supervisors, too";
}

// The third Ctrl-C kills ranks and supervisors. The launcher has recorded all of them.
TEST(Diagnosis, KnowsFromTheLauncherWhyNobodyRecordedAnEnd) {
  auto run = run_of(2);
  run.job->exit_code = 1;
  run.job->message = "mpirun ended with code 1, and no record exists of the end of rank 0, 1";
  auto found = diagnose(run);
  EXPECT_EQ(found.cause, Cause::unknown);
  EXPECT_THAT(found.verdict, testing::HasSubstr("no record exists of the end of rank 0, 1"));
  EXPECT_THAT(found.verdict, testing::Not(testing::HasSubstr("launcher was killed")));
  run.job->signals = {{SIGTERM, noon}, {SIGTERM, noon + second}, {SIGTERM, noon + second}};
  found = diagnose(run);
  EXPECT_EQ(found.cause, Cause::interrupted);
  EXPECT_THAT(found.verdict, testing::Not(testing::HasSubstr("launcher was killed")));
}

// The supervisor of rank 1 was killed, and mpirun killed that of rank 0 before it had recorded the end
// of its rank.
TEST(Diagnosis, KnowsFromRunJsonThatRankZeroLostAPeer) {
  auto run = run_of(2);
  for (auto& rank : run.ranks) rank.host = "node1";
  run.facts.exit_code = 70;
  EXPECT_EQ(diagnose(run).cause, Cause::killed);
  EXPECT_EQ(diagnose(run).rank, 1);
  EXPECT_THAT(diagnose(run).verdict, HasSubstr("rank 1 on node1 was killed together with its supervisor"));
}

TEST(Diagnosis, SaysThatMpirunWasKilled) {
  auto run = run_of(2);
  run.job->host = "node1";
  run.job->starter = "mpirun";
  run.job->starter_signal = SIGKILL;
  for (const bool recorded : {false, true}) {
    if (recorded)
      for (auto& rank : run.ranks) end(rank, 0, SIGKILL, true);
    const auto found = diagnose(run);
    EXPECT_EQ(found.cause, Cause::killed);
    EXPECT_EQ(found.rank, std::nullopt);
    EXPECT_THAT(found.verdict,
                HasSubstr("the run ended because mpirun was killed by signal 9 (Killed) at 08:00:01 "
                          "UTC; it has no checkpoint."));
    EXPECT_THAT(found.next, Contains(HasSubstr("check the kernel log on node1")));
  }
  run.folder = "run/starts/0001";
  EXPECT_THAT(diagnose(run).verdict, testing::EndsWith("(Killed) at 08:00:01 UTC."));
  EXPECT_THAT(diagnose(run).next, Contains(HasSubstr("for the last one: farandole doctor run")));
  run.job->signals = {{SIGTERM, noon}};
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted) << "the launcher kills it after the third signal";
}

TEST(Diagnosis, NamesWhatIsStoppedAboveTheRanks) {
  auto run = run_of(2);
  run.job->end_ns = 0;
  run.launcher_alive = true;
  run.stopped_helpers = {{"mpirun", 70}, {"the supervisor of rank 1", 72}};
  auto found = diagnose(run);
  EXPECT_EQ(found.cause, Cause::running);
  EXPECT_THAT(found.verdict, HasSubstr("; mpirun (process 70) is stopped (state T); the supervisor of rank 1 "
                                       "(process 72) is stopped (state T)."));
  EXPECT_THAT(found.next, Contains("continue mpirun: kill -CONT 70"));
  run.ranks[0].log.stall = "stall: rank 0 has waited 3.2 s in allreduce #3 'bucket 0'";
  found = diagnose(run);
  EXPECT_EQ(found.cause, Cause::stalled);
  EXPECT_THAT(found.verdict,
              testing::EndsWith("the supervisor of rank 1 (process 72) is stopped (state T)."));
}

}  // namespace
}  // namespace farandole
