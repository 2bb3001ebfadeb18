#include "farandole/doctor/rank_evidence.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using testing::HasSubstr;

TEST(LogEvidence, IsOfTheLastStart) {
  const TemporaryFolder folder;
  std::ofstream(folder / "log") << "--- 2026-11-21 10:00:00: rank 0 of 2 on node1: train\n"
                                   "[10:00:01.000] terminate called after throwing an instance of 'E'\n"
                                   "--- killed by signal 6 (Aborted)\n"
                                   "--- 2026-11-21 11:00:00: rank 0 of 2 on node2: train -x\n"
                                   "[11:00:01.000] farandole train: the loss is nan at step 7\n"
                                   "[11:00:01.000] bye\n"
                                   "--- exit code 1\n";
  const auto log = read_log(folder / "log");
  EXPECT_TRUE(log.found);
  EXPECT_EQ(log.host, "node2");
  EXPECT_EQ(log.exit_code, 1);
  EXPECT_FALSE(log.signal);
  EXPECT_FALSE(log.uncaught_exception);
  EXPECT_EQ(log.error, "farandole train: the loss is nan at step 7");
  EXPECT_EQ(log.last_lines.back(), "bye");
  EXPECT_FALSE(read_log(folder / "missing").found);
  EXPECT_FALSE(read_log(folder.path()).exit_code);
}

TEST(LogEvidence, TellsAnUncaughtException) {
  const auto log = read_last_words(
      "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no samples\n");
  EXPECT_TRUE(log.uncaught_exception);
  EXPECT_EQ(log.error, "std::runtime_error: no samples");
  EXPECT_EQ(read_last_words("terminate called without an active exception\n").error,
            "terminate called without an active exception");
  EXPECT_EQ(read_last_words("what(): nothing\n").error, "");
}

TEST(LogEvidence, KeepsTheLastStallThatIsNotOver) {
  const std::string stall =
      "farandole: [rank 0] stall: ranks 0, 2 have waited 1.0 s in allreduce #3 'bucket 0'\n"
      "  rank 1 (pid 7 on node1) is missing: it is stopped (state T)\n";
  const std::string report =
      "farandole: [rank 0] is stalled: it is in allreduce #3\n  the training thread's stack:\n    main+0x1 "
      "Error: x\n";
  auto log = read_last_words(report + stall + "other\n");
  EXPECT_THAT(log.stall, HasSubstr("ranks 0, 2"));
  EXPECT_THAT(log.stall, HasSubstr("\n  rank 1 (pid 7"));
  EXPECT_EQ(log.error, "") << "frames are no complaints";
  EXPECT_EQ(log.last_lines, std::vector<std::string>{"other"});
  log = read_last_words(stall +
                        "farandole: [rank 0] the stall in allreduce #3 'bucket 0' is over, after 2.0 s\n");
  EXPECT_EQ(log.stall, "");
  log = read_last_words(
      stall + "farandole: [rank 0] waited 2.0 s in allreduce #3: the job ends here (stall-abort is 2.0 s)\n");
  EXPECT_THAT(log.stall_end, HasSubstr("the job ends here"));
  const std::string python =
      "farandole: [rank 1] keeps other ranks waiting: it is stuck in data loading; pid 7 on node1\n"
      "  the training thread is at loader.py:118 in fetch; its stack:\n    fetch at loader.py:118\n";
  EXPECT_EQ(read_last_words(python).place, "loader.py:118 in fetch");
  EXPECT_EQ(
      read_last_words(python + "farandole: [rank 0] the stall in allreduce #3 is over, after 2 s\n").place,
      "");
  log = read_last_words("farandole: [rank 0] deadlock: rank 0 waits in allreduce #3, rank 1 has ended\n");
  EXPECT_EQ(log.error, "deadlock: rank 0 waits in allreduce #3, rank 1 has ended");
}

TEST(LogEvidence, TellsLossesAndFullDisks) {
  const auto log = read_last_words(
      "farandole: [rank 0] rank 1 (pid 7 on node1) was killed by SIGKILL; rank 0 was in allreduce #3 'b'\r\n"
      "write step-1.h5: No space left on device\nterminate called after throwing an instance of "
      "'std::bad_alloc'\n");
  ASSERT_EQ(log.losses.size(), 1u);
  EXPECT_THAT(log.losses[0], HasSubstr("killed by SIGKILL"));
  EXPECT_TRUE(log.disk_full);
  EXPECT_TRUE(log.memory_short);
  for (const std::string last :
       {"MemoryError", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB"}) {
    const auto python = read_last_words(
        "ValueError: before\nTraceback (most recent call last):\n  File \"t.py\"\n" + last + "\n");
    EXPECT_TRUE(python.memory_short);
    EXPECT_EQ(python.error, last);
  }
  EXPECT_EQ(read_last_words("AssertionError\nthe last Error\n").error, "AssertionError");
}

TEST(LogEvidence, TakesAnything) {
  for (const std::string text :
       {"", "\n", "---", "--- ", "--- : rank ", "[", "[00:00:00.000] ", "farandole: [rank ",
        "farandole: [rank ] ", "--- exit code ", "--- killed by signal x"})
    EXPECT_TRUE(read_last_words(text).found) << text;
  EXPECT_EQ(read_last_words(std::string(1 << 20, '\0')).last_lines.size(), 1u);
}

}  // namespace
}  // namespace farandole
