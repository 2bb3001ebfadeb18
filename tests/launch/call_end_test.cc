#include "farandole/launch/call_end.h"

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

RankRecord failed_rank(int rank, int exit_code, std::int64_t time_ns, const std::string& error = "") {
  RankRecord record{rank, "vm", exit_code, 0, false, time_ns};
  record.last_words = error;
  return record;
}

RankRecord killed_rank(int rank, int signal, std::int64_t time_ns, bool told) {
  return {rank, "vm", 0, signal, told, time_ns};
}

TEST(CallEnd, IsTheErrorOfTheFunctionThatFailedFirst) {
  const auto end =
      call_end_of({killed_rank(0, SIGTERM, 9, true), failed_rank(1, 1, 8)},
                  {failed_rank(1, 3, 7, "no such column"), failed_rank(0, 70, 6, "connection closed")},
                  {3, "rank 1 (host vm) failed first", false}, "run");
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(end.rank, 1);
  EXPECT_EQ(end.message, "rank 1 on vm: no such column");
}

TEST(CallEnd, IsTheDeathOfARankThatOthersLost) {
  const auto end = call_end_of({failed_rank(0, 70, 8), killed_rank(1, SIGKILL, 9, false)},
                               {failed_rank(0, 70, 7, "connection closed")}, {137, "", false}, "run");
  EXPECT_EQ(end.exit_code, 137);
  EXPECT_EQ(end.rank, 1);
  EXPECT_EQ(end.message,
            "rank 1 on vm has failed: it was killed by signal 9 (Killed); farandole doctor run says more");
}

TEST(CallEnd, IsWhatTheLauncherSaysIfNoRankFailedByItself) {
  const auto end =
      call_end_of({killed_rank(0, SIGTERM, 9, true)}, {}, {1, "mpirun ended with code 1", true}, "");
  EXPECT_EQ(end.rank, std::nullopt);
  EXPECT_EQ(end.message, "mpirun ended with code 1");
  EXPECT_EQ(call_end_of({}, {}, {64, "", false}, "").message, "farandole run ended with exit code 64");
  EXPECT_EQ(call_end_of({failed_rank(0, 0, 1)}, {}, {}, "").message, "");
}

TEST(CallEnd, GoesThroughItsFile) {
  const TemporaryFolder folder(std::filesystem::temp_directory_path());
  EXPECT_FALSE(read_call_end(folder / "gone").has_value());
  for (const auto rank : {std::optional<int>(), std::optional(3)}) {
    write_call_end(folder / "gone", {5, rank, "ü \"quoted\""});
    const auto end = read_call_end(folder / "gone");
    EXPECT_EQ(end->exit_code, 5);
    EXPECT_EQ(end->rank, rank);
    EXPECT_EQ(end->message, "ü \"quoted\"");
  }
}

}  // namespace
}  // namespace farandole
