#include "farandole/timeline/recorder/run_progress.h"

#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/run_timeline.h"

namespace farandole {
namespace {

void log_step(const TemporaryFolder& run, int step) {
  std::ofstream(run / "metrics.jsonl") << "{\"step\":" << step << "}\n";
}

// Records steps until, and in, step `last`, and is killed there; or, with `between`, after it.
void kill_in_step(const TemporaryFolder& run, int last, bool between = false) {
  const pid_t rank = ::fork();
  if (rank == 0) {
    Timeline timeline(run_timeline(run.path()));
    for (int step = 0; step <= last; ++step) {
      timeline.set_step(step);
      const Span span(timeline, Category::step, "step");
    }
    if (between) timeline.set_step(-1);
    { const Span span(timeline, Category::evaluation, "evaluate"); }
    ::raise(SIGKILL);
  }
  ::waitpid(rank, nullptr, 0);
}

TEST(RunProgress, OfARunThatHasDoneNothingIsUnknown) {
  const TemporaryFolder run;
  EXPECT_FALSE(read_run_progress(run.path()).step);
  EXPECT_FALSE(read_run_progress(run / "absent").step);
  { const Timeline began(run_timeline(run.path())); }
  EXPECT_FALSE(read_run_progress(run.path()).step);
}

TEST(RunProgress, IsThatOfTheLastLoggedStepWithoutARecorder) {
  const TemporaryFolder run;
  log_step(run, 1000);
  EXPECT_EQ(read_run_progress(run.path()).step, 1000);
  EXPECT_GT(read_run_progress(run.path()).end_ns, 0);
}

TEST(RunProgress, IsThatOfTheRecorderAfterAKill) {
  const TemporaryFolder run;
  log_step(run, 1);
  const auto before = real_time_ns();
  kill_in_step(run, 40);
  const auto progress = read_run_progress(run.path());
  EXPECT_EQ(progress.step, 40);
  EXPECT_GE(progress.begin_ns, before);
  EXPECT_GE(progress.end_ns, progress.begin_ns);
  EXPECT_LE(progress.end_ns, real_time_ns());
}

TEST(RunProgress, KnowsTheStepsBeforeAnEvaluation) {
  const TemporaryFolder run;
  kill_in_step(run, 40, true);
  EXPECT_EQ(read_run_progress(run.path()).step, 41);
}

TEST(RunProgress, LeavesOutADamagedRecorder) {
  const TemporaryFolder run;
  kill_in_step(run, 40);
  log_step(run, 5);
  std::filesystem::resize_file(recorder_file(run.path(), 0), 100);
  EXPECT_EQ(read_run_progress(run.path()).step, 5);
}

}  // namespace
}  // namespace farandole
