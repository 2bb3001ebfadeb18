#include <gtest/gtest.h>

#include "farandole/analyzer/what_if/shared_cores.h"

namespace farandole {
namespace {

TEST(WorkClock, RunsWithTimeWhereThereAreCoresEnough) {
  const WorkClock clock;
  EXPECT_EQ(clock.at(70) - clock.at(20), 50);
}

TEST(WorkClock, SlowsDownWhereThreadsShareCores) {
  // Four threads share 2 cores. Two of them wait from 100 to 200, and three from 200 to 300.
  const std::vector<std::vector<Interval>> idle = {{}, {{200, 300}}, {{100, 300}}, {{100, 300}}};
  const WorkClock clock(idle, {}, 1, 2, {0, 400});
  EXPECT_DOUBLE_EQ(clock.at(100) - clock.at(0), 50);
  EXPECT_DOUBLE_EQ(clock.at(200) - clock.at(100), 100);
  EXPECT_DOUBLE_EQ(clock.at(300) - clock.at(200), 100);
  EXPECT_DOUBLE_EQ(clock.at(400) - clock.at(300), 50);
  // An additional thread uses a share of the cores.
  const WorkClock shared(idle, {{100, 200}}, 1, 2, {0, 400});
  EXPECT_NEAR(shared.at(200) - shared.at(100), 100 * 2 / 3.0, 1e-9);
}

TEST(ThreadClock, LeavesWaitsOut) {
  const WorkClock clock;
  const std::vector<Interval> waits = {{0, 20}, {30, 40}, {60, 120}, {150, 160}};
  const ThreadClock thread(clock, waits, {10, 140});
  EXPECT_EQ(thread.at(10), 0);
  EXPECT_EQ(thread.at(20), 0);
  EXPECT_EQ(thread.at(30), 10);
  EXPECT_EQ(thread.at(35), 10);
  EXPECT_EQ(thread.at(50), 20);
  EXPECT_EQ(thread.at(60), 30);
  EXPECT_EQ(thread.at(130), 40);
  EXPECT_EQ(thread.at(140), 50);
}

}  // namespace
}  // namespace farandole
