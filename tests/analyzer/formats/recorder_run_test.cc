#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/json_report.h"
#include "timeline/synthetic_run.h"
#include <nlohmann/json.hpp>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/merge/record_source.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/run_timeline.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

using namespace ::testing;

std::filesystem::path record(const TemporaryFolder& folder, const SyntheticRun& run) {
  std::filesystem::create_directories(folder / "run" / "recorder");
  for (int rank = 0; rank < run.ranks; ++rank) run.record(folder / "run" / "recorder", rank);
  return folder / "run";
}

TEST(RecorderRun, IsAnalyzedWithoutAMergedTrace) {
  const TemporaryFolder folder;
  const SyntheticRun synthetic;
  const auto path = record(folder, synthetic);
  const auto run = analyze_run(path);
  const auto& metrics = run.metrics;
  ASSERT_THAT(metrics.ranks, SizeIs(synthetic.ranks));
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("there is no merged trace")));
  EXPECT_THAT(metrics.window.steps, SizeIs(synthetic.steps - warmup_of(synthetic.steps)));
  for (const auto& rank : metrics.ranks) {
    EXPECT_EQ(rank.host, "node" + std::to_string(rank.rank));
    EXPECT_GT(rank.compute, 0);
  }
  ASSERT_THAT(metrics.collectives, SizeIs(synthetic.buckets));
  EXPECT_DOUBLE_EQ(metrics.collectives[0].bytes.value.value(), 1 << 20);
}

TEST(RecorderRun, GoesOnWhereAFileIsDamaged) {
  const TemporaryFolder folder;
  const SyntheticRun synthetic;
  const auto path = record(folder, synthetic);
  std::ofstream(synthetic.file(path / "recorder", 1), std::ios::binary) << "nonsense";
  const auto run = analyze_run(path);
  EXPECT_THAT(run.metrics.ranks, SizeIs(synthetic.ranks - 1));
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("rank-0001.ftl")));
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("no events of rank 1 (of 3)")));
  for (int rank = 0; rank < synthetic.ranks; ++rank)
    std::ofstream(synthetic.file(path / "recorder", rank), std::ios::binary) << "nonsense";
  EXPECT_THROW(analyze_run(path), CorruptInput);
}

// In large runs the merge keeps a sample of the ranks. The recorder files next to the trace have all ranks.
TEST(RecorderRun, GoesBeforeATraceOfFewOfItsRanks) {
  const TemporaryFolder folder;
  const SyntheticRun synthetic;
  const auto path = record(folder, synthetic);
  RunMergeOptions some{.merge_limit = 2};
  merge_timelines(open_run(recorder_files(path), some).ranks, path / "timeline.json.gz");
  std::ofstream(path / "run.json") << R"({"ranks":3,"global_batch":96,"device":"cpu"})";
  const auto run = analyze_run(path);
  EXPECT_THAT(run.metrics.ranks, SizeIs(3));
  EXPECT_FALSE(run.metrics.is_sample());
  EXPECT_THAT(run.metrics.warnings,
              Contains(HasSubstr("the merged trace has 2 of 3 ranks; this report uses the")));
  EXPECT_TRUE(run.metrics.throughput.value);
  // The trace alone is a sample. The report has the size of the run and sums for all ranks.
  std::filesystem::remove_all(path / "recorder");
  const auto sample = analyze_run(path);
  ASSERT_THAT(sample.metrics.ranks, SizeIs(2));
  EXPECT_EQ(sample.metrics.size(), 3U);
  EXPECT_THAT(sample.verdict, HasSubstr("3 ranks (2 of them measured) train"));
  EXPECT_DOUBLE_EQ(sample.metrics.hours(), 3 * sample.metrics.window_ns() * 1e-9 / 3600);
  ASSERT_THAT(sample.metrics.collectives, SizeIs(synthetic.buckets));
  for (const auto& row : sample.metrics.collectives)
    EXPECT_DOUBLE_EQ(*row.busbw_gbps.value / *row.algbw_gbps.value, 4.0 / 3);
  const auto report = testing::json_report(report_of({sample}));
  EXPECT_EQ(report["runs"][0]["ranks"], 3);
  EXPECT_EQ(report["runs"][0]["measured_ranks"], 2);
}

// Any damage: the file is cut at any byte, or empty.
TEST(RecorderRun, StandsInForADamagedTrace) {
  const TemporaryFolder folder;
  const SyntheticRun synthetic;
  const auto path = record(folder, synthetic);
  const auto trace = path / "timeline.json.gz";
  RunMergeOptions all;
  merge_timelines(open_run(recorder_files(path), all).ranks, trace);
  const auto sound = analyze_run(path);
  EXPECT_THAT(sound.metrics.warnings, Not(Contains(HasSubstr("recorders"))));
  const auto size = std::filesystem::file_size(trace);
  for (const auto left : {size * 9 / 10, size / 2, size / 20, std::uintmax_t{30}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(trace, left);
    const auto run = analyze_run(path);
    EXPECT_THAT(run.metrics.window.steps, SizeIs(sound.metrics.window.steps.size())) << left;
    EXPECT_THAT(run.metrics.ranks, SizeIs(synthetic.ranks)) << left;
    EXPECT_THAT(run.metrics.warnings, Contains(AllOf(HasSubstr("timeline.json.gz"),
                                                     HasSubstr("this report uses the recorder files"))))
        << left;
  }
  std::ofstream(trace, std::ios::binary) << "nonsense";
  EXPECT_THAT(analyze_run(path).metrics.warnings, Contains(HasSubstr("not a Chrome trace")));
  for (int rank = 0; rank < synthetic.ranks; ++rank)
    std::ofstream(synthetic.file(path / "recorder", rank), std::ios::binary) << "nonsense";
  EXPECT_THROW(analyze_run(path), CorruptInput);
}

// Another launcher has started the ranks: nobody has measured their clocks or knows how they ended.
TEST(RecorderRun, NamesWhatItsRanksLeftUndone) {
  const TemporaryFolder folder;
  const SyntheticRun synthetic{.ranks = 5, .clocks_measured = false};
  const auto path = record(folder, synthetic);
  const auto change = [&](int rank, auto how) {
    const RawData file(synthetic.file(path / "recorder", rank), O_RDWR);
    recorder::Header header;
    file.read(0, std::as_writable_bytes(std::span(&header, 1)));
    how(header);
    header.fixed.crc = crc_of(header.fixed);
    file.write(0, std::as_bytes(std::span(&header, 1)));
  };
  change(1, [](recorder::Header& header) { header.end_monotonic_ns = 0; });
  change(2, [](recorder::Header& header) { header.fixed.start_realtime_ns += 20'000'000'000; });
  std::filesystem::remove(synthetic.file(path / "recorder", 3));
  const auto expect_warnings = [&] {
    EXPECT_THAT(analyze_run(path).metrics.warnings,
                IsSupersetOf<Matcher<std::string>>(
                    {HasSubstr("rank 3 (of 5)"), StartsWith("rank 1 (of 5) did not close the recorder"),
                     StartsWith("rank 2 began to record up to 20 s after the first rank"),
                     AllOf(StartsWith("ranks 1, 2, 4 recorded on hosts whose clocks were not measured; their "
                                      "dates and collectives align them to 0."),
                           EndsWith(" ms"))}));
  };
  expect_warnings();
  EXPECT_THAT(analyze_run(path).metrics.ranks, SizeIs(4));
  // The trace has lost how the ranks ended, and the recorders still tell it.
  merge_run(path);
  expect_warnings();
}

// For example after SIGUSR2.
TEST(RecorderRun, GoesBeforeATraceThatWasWrittenMeanwhile) {
  const TemporaryFolder folder;
  const SyntheticRun synthetic;
  const auto path = record(folder, synthetic);
  merge_run(path);
  EXPECT_THAT(analyze_run(path).metrics.warnings, Not(Contains(HasSubstr("no merged trace"))));
  using namespace std::chrono_literals;
  const auto now = std::filesystem::last_write_time(synthetic.file(path / "recorder", 1));
  std::filesystem::last_write_time(path / "timeline.json.gz", now - 20s);
  EXPECT_FALSE(has_whole_trace(path));
  EXPECT_THAT(analyze_run(path).metrics.warnings, Contains(HasSubstr("no merged trace")));
  EXPECT_TRUE(complete_run(path));
  EXPECT_TRUE(has_whole_trace(path));
  EXPECT_FALSE(complete_run(path));
  std::filesystem::remove(path / "timeline.json.gz");
  {
    const Timeline runs({.file = path / "recorder/rank-0003.ftl", .rank = 3, .world_size = 4});
    EXPECT_FALSE(complete_run(path));
  }
  EXPECT_TRUE(complete_run(path));
}

TEST(RecorderRun, TakesOneFile) {
  const TemporaryFolder folder;
  const SyntheticRun synthetic;
  const auto path = record(folder, synthetic);
  const auto run = analyze_run(synthetic.file(path / "recorder", 2));
  ASSERT_THAT(run.metrics.ranks, SizeIs(1));
  EXPECT_EQ(run.metrics.ranks[0].rank, 2);
  // With three ranks, the bus bandwidth is known.
  for (const auto& row : run.metrics.collectives)
    EXPECT_DOUBLE_EQ(*row.busbw_gbps.value / *row.algbw_gbps.value, 4.0 / 3);
}

// A program of one's own has no run.json, and advice that names options of `farandole train` does
// not help it.
TEST(RecorderRun, OfAProgramHasStepsPerSecondAndARemedy) {
  const TemporaryFolder folder;
  const auto path = record(folder, SyntheticRun{});
  auto run = analyze_run(path);
  EXPECT_EQ(run.metrics.kind, ProgramKind::program);
  EXPECT_NEAR(run.metrics.steps_per_s.value.value(), 100, 5);
  EXPECT_THAT(run.metrics.throughput.unknown, HasSubstr("farandole::Run"));
  EXPECT_THAT(run.verdict, HasSubstr("steps/s; "));
  for (const auto& finding : run.findings) EXPECT_THAT(finding.change, Not(HasSubstr("--")));
  ASSERT_TRUE(run.goodput);
  const auto report = report_of({run});
  EXPECT_THAT(report_text(report, false), HasSubstr("steps/s; samples/s are unknown"));
  EXPECT_THAT(report_text(report, false), HasSubstr("\n  goodput     "));
  EXPECT_THAT(report_html(report, ""), HasSubstr("goodput"));
  const auto written = testing::json_report(report)["runs"][0];
  EXPECT_NEAR(written["steps_per_s"].get<double>(), 100, 5);
  EXPECT_TRUE(written["goodput"].contains("fraction") || written["goodput"].contains("unknown"));
  std::ofstream(path / "run.json") << R"({"program":"farandole train --model mlp"})";
  run = analyze_run(path);
  EXPECT_EQ(run.metrics.kind, ProgramKind::train);
  EXPECT_FALSE(analyze_run(path / "recorder/rank-0000.ftl").goodput);
}

}  // namespace
}  // namespace farandole
