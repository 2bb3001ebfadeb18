#include "farandole/timeline/merge/run_recorders.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "error_message.h"
#include "timeline/gzip/unzipped.h"
#include "timeline/synthetic_run.h"
#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/merge/rank_choice.h"

namespace farandole {
namespace {

using nlohmann::json;

json trace_in(const TemporaryFolder& folder) {
  return json::parse(unzipped(folder / "timeline.json.gz"));
}

RunRecorders merge_in(const TemporaryFolder& folder, const RunMergeOptions& options = {}) {
  RunRecorders run = open_run(recorder_files(folder.path()), options);
  merge_timelines(std::move(run.ranks), folder / "timeline.json.gz");
  return run;
}

void record(const SyntheticRun& run, const TemporaryFolder& folder) {
  for (int rank = 0; rank < run.ranks; ++rank) run.record(folder.path(), rank);
}

TEST(RankSet, ParsesWhatTheOptionTakes) {
  const RankSet ranks = RankSet::parse("0,3-5,17");
  for (const int rank : {0, 3, 4, 5, 17}) EXPECT_TRUE(ranks.contains(rank));
  for (const int rank : {1, 2, 6, 16, 18}) EXPECT_FALSE(ranks.contains(rank));
  EXPECT_TRUE(RankSet().contains(99));
  EXPECT_TRUE(RankSet::parse("all").contains(99));
  for (const char* text : {"", ",", "1,", "a", "-1", "3-1", "1-", "1--2", "1 ,2", "99999999999"})
    EXPECT_THROW(RankSet::parse(text), UserError) << text;
}

TEST(RunRecorders, FilesAloneAreAlignedAsTheRunWas) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  record(run, folder);
  run.merge(folder.path(), folder / "run.json.gz");
  const RunRecorders result = merge_in(folder);
  EXPECT_TRUE(result.sound());
  ASSERT_EQ(result.files.size(), 3u);
  EXPECT_EQ(result.files[1].rank, 1);
  EXPECT_TRUE(result.files[1].closed);
  EXPECT_EQ(unzipped(folder / "timeline.json.gz"), unzipped(folder / "run.json.gz"));
}

// There are more ranks than files that a process may open, as login nodes limit it.
TEST(RunRecorders, OpensAsManyAsTheHardLimitAllows) {
  const TemporaryFolder folder;
  SyntheticRun run{.ranks = 150};
  record(run, folder);
  const auto files = recorder_files(folder.path());
  const auto opens = [&](rlim_t hard) {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit few{100, hard};
      ::setrlimit(RLIMIT_NOFILE, &few);
      try {
        ::_exit(open_run(files, {}).files.size() == 150 ? 0 : 1);
      } catch (const UserError& error) {
        ::_exit(std::string(error.what()).find("150 files") != std::string::npos ? 2 : 3);
      }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(opens(400), 0);
  EXPECT_EQ(opens(150), 2);
}

TEST(RunRecorders, SlicesRanksAndSteps) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  record(run, folder);
  RunMergeOptions options{.ranks = RankSet::parse("0,2")};
  options.steps = {5, 6};
  merge_in(folder, options);
  std::set<int> pids, steps;
  std::size_t spans = 0;
  const json trace = trace_in(folder);
  for (const json& event : trace["traceEvents"]) {
    pids.insert(event["pid"].get<int>());
    if (event["ph"] != "X") continue;
    steps.insert(event["args"]["step"].get<int>());
    spans += event["name"] == "step";
  }
  EXPECT_EQ(pids, (std::set<int>{1, 3}));
  EXPECT_EQ(steps, (std::set<int>{5, 6}));
  EXPECT_EQ(spans, 4u);
  options.ranks = RankSet::parse("7");
  EXPECT_THROW(merge_in(folder, options), UserError);
}

TEST(RunRecorders, ReadsWhatIsSoundAndNamesTheRest) {
  const TemporaryFolder folder;
  SyntheticRun run{.ranks = 5, .recorder_bytes = recorder::smallest_file};
  record(run, folder);
  std::ofstream(run.file(folder.path(), 1), std::ios::trunc) << "foreign";
  std::filesystem::resize_file(run.file(folder.path(), 2), 60'000);
  std::filesystem::resize_file(run.file(folder.path(), 3), 0);
  {
    std::fstream file(run.file(folder.path(), 4), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offsetof(recorder::FixedHeader, host) + 2);
    file.put('X');
  }
  const RunRecorders result = merge_in(folder);
  EXPECT_FALSE(result.sound());
  EXPECT_TRUE(result.files[0].sound());
  EXPECT_FALSE(result.files[1].readable);
  EXPECT_TRUE(result.files[2].readable);
  EXPECT_GT(result.files[2].records, 0u);
  EXPECT_GT(result.files[2].damaged, 0u);
  EXPECT_THAT(result.files[2].problems, testing::ElementsAre(testing::HasSubstr("is the first")));
  EXPECT_THAT(result.files[3].problems, testing::ElementsAre(testing::HasSubstr("empty")));
  EXPECT_TRUE(result.files[4].readable);
  EXPECT_THAT(result.files[4].problems, testing::ElementsAre(testing::HasSubstr("checksum")));
  EXPECT_TRUE(trace_in(folder).is_object());
}

// The damaged header of one file names the rank of another, sound file.
TEST(RunRecorders, ADamagedHeaderDoesNotDisplaceAnotherRank) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  record(run, folder);
  const auto claim_rank_2 = [&](const std::filesystem::path& path) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offsetof(recorder::FixedHeader, rank));
    file.put(2);
  };
  claim_rank_2(run.file(folder.path(), 1));
  const RunRecorders named = open_run(recorder_files(folder.path()), {});
  ASSERT_EQ(named.ranks.size(), 3u);
  EXPECT_EQ(named.files[1].rank, 1) << "the rank in the name of the file";
  EXPECT_EQ(named.missing, "");

  std::filesystem::rename(run.file(folder.path(), 1), folder / "a.ftl");
  const RunRecorders unnamed = open_run(recorder_files(folder.path()), {});
  EXPECT_EQ(unnamed.ranks.size(), 2u);
  EXPECT_THAT(unnamed.files[0].problems, testing::Contains(testing::HasSubstr("another file")));
  EXPECT_TRUE(unnamed.files[2].sound());
  EXPECT_THAT(unnamed.missing, testing::HasSubstr("of rank 1 (the run has 3 ranks)"));
}

TEST(RunRecorders, NamesRanksWithoutAFile) {
  const TemporaryFolder folder;
  SyntheticRun run{.ranks = 6};
  record(run, folder);
  std::filesystem::resize_file(run.file(folder.path(), 1), 0);
  for (const int rank : {2, 3, 5}) std::filesystem::remove(run.file(folder.path(), rank));
  RunMergeOptions options;
  EXPECT_THAT(open_run(recorder_files(folder.path()), options).missing,
              testing::HasSubstr("of ranks 2, 3, 5 "));
  options.ranks = RankSet::parse("0,3,4");
  EXPECT_THAT(open_run(recorder_files(folder.path()), options).missing, testing::HasSubstr("of rank 3 "));
  options.ranks = RankSet::parse("0-1");
  EXPECT_EQ(open_run(recorder_files(folder.path()), options).missing, "");
}

// On each host, one rank measures the clock for all.
TEST(RunRecorders, ARankThatIsNotShownLendsItsClockSamples) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  constexpr std::int64_t ahead_ns = 72'000'000;
  for (int rank = 0; rank < 4; ++rank) {
    TimelineOptions options{.file = run.file(folder.path(), rank),
                            .recorder_bytes = recorder::smallest_file,
                            .rank = rank,
                            .world_size = 4,
                            .host = rank < 2 ? "node1" : "node2"};
    Timeline timeline(options);
    timeline.span(Category::other, "work", SyntheticRun::start_ns, SyntheticRun::start_ns + 1000);
    if (rank == 2) timeline.set_clock(std::vector<RoundTrip>{{1000, 1500 + ahead_ns, 2000}});
  }
  RunMergeOptions options{.ranks = RankSet::parse("3")};
  const RunRecorders slice = open_run(recorder_files(folder.path()), options);
  ASSERT_EQ(slice.ranks.size(), 1u);
  EXPECT_TRUE(slice.ranks[0].clock_known);
  EXPECT_EQ(slice.ranks[0].clock.to_reference(5000), 5000 + ahead_ns);
  options.ranks = RankSet::parse("1");
  const RunRecorders of_rank_0 = open_run(recorder_files(folder.path()), options);
  EXPECT_TRUE(of_rank_0.ranks.at(0).clock_known);
  EXPECT_EQ(of_rank_0.ranks[0].clock.to_reference(5000), 5000);
}

// A run of many ranks is resumed on fewer ranks. The first start has left recorders of all its ranks.
TEST(RunRecorders, OfAnEarlierStartAreLeftOut) {
  for (const auto& [before, now] : {std::pair{5, 2}, {4, 1}, {3, 3}, {2, 4}}) {
    const TemporaryFolder folder;
    SyntheticRun run{.ranks = before};
    record(run, folder);
    run.ranks = now;
    record(run, folder);
    const RunRecorders result = merge_in(folder);
    EXPECT_TRUE(result.sound());
    EXPECT_EQ(result.files.size(), static_cast<std::size_t>(now));
    const int earlier = std::max(0, before - now);
    EXPECT_EQ(result.earlier.substr(0, 2), earlier > 0 ? std::to_string(earlier) + " " : "");
    std::set<int> pids;
    const json trace = trace_in(folder);
    for (const json& event : trace["traceEvents"]) pids.insert(event["pid"].get<int>());
    EXPECT_EQ(*pids.rbegin(), now);
    EXPECT_EQ(trace["otherData"]["ranks"], now) << trace["otherData"];
    if (earlier > 0) {
      RunMergeOptions options{.ranks = RankSet::parse(std::to_string(before - 1))};
      EXPECT_THROW(merge_in(folder, options), UserError);
    }
  }
}

TEST(RunStart, IsJudgedByNumberOfRanksAndDate) {
  constexpr std::int64_t second = 1'000'000'000;
  const RunStart last = last_of({{100 * second, 4}, {200 * second, 2}, {199 * second, 2}});
  EXPECT_EQ(last.realtime_ns, 200 * second);
  EXPECT_FALSE(is_earlier({199 * second, 2}, last));
  EXPECT_FALSE(is_earlier({141 * second, 2}, last));
  EXPECT_TRUE(is_earlier({139 * second, 2}, last));
  EXPECT_TRUE(is_earlier({139 * second, 2, 199 * second}, last));
  EXPECT_FALSE(is_earlier({139 * second, 2, 201 * second}, last)) << "a rank came late";
  EXPECT_TRUE(is_earlier({199 * second, 4}, last));
  EXPECT_FALSE(is_earlier({199 * second, 4}, {200 * second, 0}));
  EXPECT_TRUE(is_earlier({139 * second, 4}, {200 * second, 0}));
}

TEST(RunRecorders, FailsOnlyWhereNothingCanBeRead) {
  const TemporaryFolder folder;
  EXPECT_THROW(recorder_files(folder.path()), UserError);
  EXPECT_THROW(recorder_files(folder / "missing"), UserError);
  std::ofstream(folder / "rank-0000.ftl") << "FARANDO1 but no more";
  EXPECT_THAT(message_of<CorruptInput>([&] { merge_in(folder); }),
              testing::HasSubstr("rank-0000.ftl, offset"));
  EXPECT_FALSE(std::filesystem::exists(folder / "timeline.json.gz"));
}

TEST(RunRecorders, ManyRanksGiveASampleWithTheSlowest) {
  const TemporaryFolder folder;
  std::vector<RankTimeline> ranks;
  for (int rank = 0; rank < 100; ++rank) {
    RankInfo info{.rank = rank};
    for (std::uint64_t key = 0; key < 10; ++key)
      info.meetings.push_back({key, static_cast<std::int64_t>(key * 1000 + (rank == 61 ? 500 : rank)), 0});
    ranks.push_back({received_source(info, [] { return std::vector<std::byte>(); }), ClockModel(), true});
  }
  const RankChoice choice = choose_ranks(ranks, 8);
  EXPECT_EQ(choice.chosen.size(), 8u);
  EXPECT_EQ(choice.slowest, 61);
  EXPECT_THAT(choice.chosen, testing::IsSupersetOf({0u, 61u, 99u}));
  EXPECT_THAT(left_out_text(ranks, choice), testing::HasSubstr("8 of 100 ranks"));
  EXPECT_EQ(choose_ranks(ranks, 0).chosen.size(), 100u);
  EXPECT_EQ(choose_ranks(ranks, 100).chosen.size(), 100u);
  EXPECT_EQ(left_out_text(ranks, choose_ranks(ranks, 100)), "");
  EXPECT_THAT(choose_ranks(ranks, 1).chosen, testing::ElementsAre(0u));
  EXPECT_EQ(choose_ranks(ranks, 99).chosen.size(), 99u);
}

}  // namespace
}  // namespace farandole
