#include "farandole/analyzer/formats/recorder_run.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_folder.h"
#include "timeline/synthetic_run.h"

#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"
#include "farandole/timeline/record_source.h"
#include "farandole/timeline/timeline.h"
#include "farandole/timeline/trace_merge.h"

namespace farandole {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::filesystem::path record(const TemporaryFolder& folder, const SyntheticRun& run) {
  std::filesystem::create_directories(folder / "run" / "recorder");
  for (int rank = 0; rank < run.ranks; ++rank) run.record(folder / "run" / "recorder", rank);
  return folder / "run";
}

TEST(RecorderRun, is_analyzed_without_a_merged_trace) {
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
  EXPECT_DOUBLE_EQ(metrics.collectives[0].bytes, 1 << 20);
}

TEST(RecorderRun, goes_on_where_a_file_is_damaged) {
  const TemporaryFolder folder;
  const SyntheticRun synthetic;
  const auto path = record(folder, synthetic);
  std::ofstream(synthetic.file(path / "recorder", 1), std::ios::binary) << "nonsense";
  const auto run = analyze_run(path);
  EXPECT_THAT(run.metrics.ranks, SizeIs(synthetic.ranks - 1));
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("rank-0001.ftl")));
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("nothing of rank 1 (of 3)")));
  for (int rank = 0; rank < synthetic.ranks; ++rank)
    std::ofstream(synthetic.file(path / "recorder", rank), std::ios::binary) << "nonsense";
  EXPECT_THROW(analyze_run(path), CorruptInput);
}

// From the recorder's file alone, and by way of the merged trace.
TEST(RecorderRun, keeps_when_gradients_were_ready) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run" / "recorder");
  const auto file = folder / "run" / "recorder" / "rank-0000.ftl";
  {
    TimelineOptions options;
    options.file = file;
    Timeline timeline(options);
    timeline.name_thread("training");
    timeline.set_step(3);
    timeline.span(Category::step, "step", 1'000, 9'000);
    timeline.instant(timeline.intern("gradient fc.weight"), 2'000, 4096);
    timeline.instant(timeline.intern("gradient without bytes"), 2'500);
    timeline.instant(timeline.intern("other"), 2'600, 5);
    timeline.instant(timeline.intern("gradient fc.bias"), 3'000, 40);
  }
  const auto expect_gradients = [](const RunModel& run) {
    ASSERT_THAT(run.ranks, SizeIs(1));
    const auto ready = run.ranks[0].gradients();
    ASSERT_THAT(ready, SizeIs(2));
    EXPECT_EQ(run.names[ready[0].name], "gradient fc.weight");
    EXPECT_EQ(ready[0].what.bytes, 4096U);
    EXPECT_EQ(ready[0].start - run.ranks[0].steps.at(0).start, 1'000);
    EXPECT_EQ(run.names[ready[1].name], "gradient fc.bias");
    EXPECT_EQ(ready[1].what.bytes, 40U);
    EXPECT_EQ(ready[1].start - run.ranks[0].steps.at(0).start, 2'000);
  };
  expect_gradients(read_run(folder / "run"));
  std::vector<std::unique_ptr<RecordSource>> sources;
  sources.push_back(open_source(file));
  merge_timelines(with_clocks(std::move(sources)), folder / "run" / "timeline.json.gz");
  expect_gradients(read_run(folder / "run"));
}

TEST(RecorderRun, takes_one_file) {
  const TemporaryFolder folder;
  const SyntheticRun synthetic;
  const auto path = record(folder, synthetic);
  const auto run = analyze_run(synthetic.file(path / "recorder", 2));
  ASSERT_THAT(run.metrics.ranks, SizeIs(1));
  EXPECT_EQ(run.metrics.ranks[0].rank, 2);
}

}  // namespace
}  // namespace farandole
