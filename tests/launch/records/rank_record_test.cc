#include "farandole/launch/records/rank_record.h"

#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/launch/outcome.h"
#include "farandole/launch/records/job_record.h"

namespace farandole {
namespace {

RankRecord ended(int rank, int exit_code, std::int64_t time_ns, bool told = false) {
  return {rank, "node1", exit_code, 0, told, time_ns};
}
RankRecord killed(int rank, int signal, std::int64_t time_ns, bool told = false) {
  return {rank, "node2", 0, signal, told, time_ns};
}

TEST(RankRecord, GoesThroughFilesAndLines) {
  const TemporaryFolder folder(std::filesystem::temp_directory_path());
  RankRecord record{12, "node \"1\"\xff", 3, 0, true, 1'234'567'890'123'456'789};
  record.run_dir = "/scratch/run 1";
  ASSERT_TRUE(write_record(folder.path(), record));
  ASSERT_TRUE(write_record(folder.path(), killed(2, SIGKILL, 5)));
  std::ofstream(folder.path() / "rank-0007.json") << R"({"rank": 7, "ho)";
  std::ofstream(folder.path() / "rank-0008.json") << R"([1, 2])";
  const auto records = read_records(folder.path());
  ASSERT_EQ(records.size(), 2u) << "the damaged ones are left out";
  EXPECT_EQ(records[0].rank, 2);
  EXPECT_EQ(records[0].signal, SIGKILL);
  EXPECT_EQ(records[1].time_ns, record.time_ns);
  EXPECT_TRUE(records[1].told);
  EXPECT_EQ(records[1].run_dir, record.run_dir);

  const auto line = parse_rank_record(record_line(record));
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->exit_code, 3);
  EXPECT_EQ(line->run_dir, record.run_dir);
  EXPECT_FALSE(parse_rank_record("nonsense").has_value());
}

TEST(RankRecord, FifosAndPreparedLinksAreNotFollowed) {
  const TemporaryFolder folder;
  std::ofstream(folder / "victim") << "precious";
  for (const char* name : {".rank-0002.tmp", ".job.json.tmp"})
    std::filesystem::create_symlink("victim", folder / name);
  ASSERT_TRUE(write_record(folder.path(), killed(2, SIGKILL, 5)));
  ASSERT_TRUE(write_job(folder / "job.json", {}));
  EXPECT_EQ(std::filesystem::file_size(folder / "victim"), 8U);
  ASSERT_EQ(::mkfifo((folder / "rank-0001.json").c_str(), 0600), 0);
  EXPECT_EQ(read_records(folder.path()).size(), 1U);
  std::filesystem::remove(folder / "job.json");
  ASSERT_EQ(::mkfifo((folder / "job.json").c_str(), 0600), 0);
  EXPECT_THROW(read_job(folder / "job.json"), CorruptInput);
}

TEST(RankRecord, AMissingFolderIsNoError) {
  EXPECT_FALSE(write_record("/proc/nonexistent/folder", ended(0, 0, 1)));
  EXPECT_TRUE(read_records("/proc/nonexistent/folder").empty());
  EXPECT_EQ(count_records("/proc/nonexistent/folder"), 0);
}

TEST(FirstFailure, IsTheEarliestThatWasNotTold) {
  EXPECT_FALSE(first_failure({ended(0, 0, 1), ended(1, 0, 2)}).has_value());
  EXPECT_EQ(first_failure({ended(0, 1, 9), ended(1, 2, 3), ended(2, 0, 1)})->rank, 1);
  EXPECT_EQ(first_failure({killed(0, SIGTERM, 1, true), killed(1, SIGSEGV, 5)})->rank, 1)
      << "clocks of hosts differ";
  EXPECT_EQ(first_failure({ended(0, 70, 1), killed(1, SIGKILL, 5)})->rank, 1) << "rank 0 only lost its peer";
  EXPECT_EQ(first_failure({ended(0, 70, 4), ended(1, 70, 3)})->rank, 1);
  EXPECT_EQ(first_failure({killed(0, SIGTERM, 1, true), ended(1, 75, 5, true)})->rank, 1)
      << "the program's answer";
}

TEST(FirstFailure, IsAnAbortOfWhichOnlyItsAnnouncementIsLeft) {
  std::vector<RankRecord> records = {killed(0, SIGTERM, 2, true), killed(2, SIGTERM, 2, true)};
  add_abort(records, {1, 5, 1, "node1"}, "start 1");
  add_abort(records, {2, 6, 1, "node1"}, "start 1");  // has a record
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[1].launch, "start 1");
  EXPECT_EQ(first_failure(records)->rank, 1);
  EXPECT_EQ(first_failure(records)->exit_code, 5);
}

Outcome outcome_of_two(const std::vector<RankRecord>& records, ChildEnd starter, int signal = 0,
                       std::string_view said = "") {
  return outcome_of(records, 2, starter, "mpirun", said, signal, "logs");
}

TEST(Outcome, NamesRankHostCauseAndLog) {
  const auto exited = outcome_of_two({ended(0, 3, 1), killed(1, SIGTERM, 2, true)}, {3, 0});
  EXPECT_EQ(exited.exit_code, 3);
  EXPECT_EQ(exited.message, "rank 0 (host node1) failed first: exit code 3; its log is logs/rank-0000.log");
  const auto dead = outcome_of_two({ended(0, 70, 3), killed(1, SIGKILL, 2)}, {137, 0});
  EXPECT_EQ(dead.exit_code, 137);
  EXPECT_EQ(
      dead.message,
      "rank 1 (host node2) failed first: it was killed by signal 9 (Killed); its log is logs/rank-0001.log");
}

TEST(Outcome, IsSilentWhereTheProgramHasSpoken) {
  for (const int code : {64, 65, 75}) {
    const auto outcome = outcome_of_two({ended(0, code, 1), killed(1, SIGTERM, 2, true)}, {code, 0});
    EXPECT_EQ(outcome.exit_code, code);
    EXPECT_EQ(outcome.message, "");
  }
  EXPECT_NE(outcome_of_two({ended(0, 64, 1), ended(1, 1, 2)}, {64, 0}).message, "") << "they do not agree";
  EXPECT_EQ(outcome_of_two({ended(0, 0, 1), ended(1, 0, 1)}, {0, 0}).exit_code, 0);
}

TEST(Outcome, OfAJobThatWasToldToStopIsTheProgramsAnswer) {
  const auto saved = outcome_of_two({ended(0, 75, 1, true), ended(1, 75, 2, true)}, {143, 0}, SIGTERM);
  EXPECT_EQ(saved.exit_code, 75);
  EXPECT_EQ(saved.message, "");
  EXPECT_EQ(
      outcome_of_two({killed(0, SIGTERM, 1, true), killed(1, SIGTERM, 2, true)}, {1, 0}, SIGTERM).exit_code,
      143);
  EXPECT_EQ(outcome_of_two({}, {0, SIGINT}, SIGINT).exit_code, 130);
}

TEST(Outcome, SaysWhichRanksSaidNothing) {
  const auto lost = outcome_of_two({killed(0, SIGTERM, 1, true)}, {1, 0});
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_EQ(lost.message, "mpirun ended with code 1, and no record exists of the end of rank 1");
  EXPECT_TRUE(lost.show_held_back);
  EXPECT_EQ(outcome_of_two({ended(0, 0, 1)}, {0, 0}).exit_code, 1) << "a missing rank is no success";
  EXPECT_EQ(outcome_of_two({}, {0, SIGKILL}).message,
            "mpirun was killed by signal 9 (Killed), and no record exists of the end of rank 0, 1");
  const auto victim = outcome_of_two({ended(0, 70, 1)}, {137, 0});
  EXPECT_EQ(victim.exit_code, 70);
  EXPECT_THAT(victim.message, testing::StartsWith("no record exists of the end of rank 1; rank 0 "));
}

TEST(Outcome, NamesARankThatLeftWithoutFinalize) {
  const auto* const said =
      "mpirun has exited due to process rank 1 with PID 0 on\nnode vm exiting improperly. There are three reasons";
  EXPECT_EQ(left_without_finalize(said), 1);
  EXPECT_EQ(left_without_finalize("mpirun has exited due to process rank 1 calling abort"), std::nullopt);
  const auto left = outcome_of_two({killed(0, SIGTERM, 2, true), ended(1, 0, 1)}, {1, 0}, 0, said);
  EXPECT_EQ(left.exit_code, 1);
  EXPECT_EQ(left.message,
            "rank 1 (host " + ended(1, 0, 1).host +
                ") ended with exit code 0 without MPI_Finalize, so mpirun ended the other ranks");
  const auto lost = outcome_of_two({ended(0, 70, 2), ended(1, 0, 1)}, {70, 0});
  EXPECT_EQ(lost.exit_code, 70);
  EXPECT_TRUE(lost.message.starts_with("rank 1 (host ")) << lost.message;
}

}  // namespace
}  // namespace farandole
