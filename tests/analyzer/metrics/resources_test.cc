#include "farandole/analyzer/metrics/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"
#include "timeline/synthetic_run.h"

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::TraceBuilder;

constexpr std::int64_t second_ns = 1'000'000'000;

// Two ranks with a load that differs over 4 s.
TraceBuilder trace_with_counters(bool on_one_node = true) {
  TraceBuilder trace(2, on_one_node);
  for (int rank = 0; rank < 2; ++rank) {
    for (int step = 0; step < 12; ++step)
      trace.step(rank, step, step * second_ns / 3, (step + 1) * second_ns / 3);
    trace.counter(rank, "CPU %", 1 * second_ns, 100);
    trace.counter(rank, "CPU %", 2 * second_ns, 100);
    trace.counter(rank, "CPU %", 4 * second_ns, 80);
    trace.counter(rank, "memory MiB", 1 * second_ns, 700 + rank);
    trace.counter(rank, "memory MiB", 2 * second_ns, 600);
    trace.counter(rank, "page faults/s", 2 * second_ns, 1e6);
  }
  return trace;
}

nlohmann::json facts() {
  return {{"ranks", 2}, {"device", "cpu"}, {"cores", 2}, {"memory_mib", 65536}};
}

TEST(Resources, AreAskedAndUsed) {
  const TemporaryFolder folder;
  trace_with_counters().write_run(folder / "run", facts());
  const auto report = report_of({analyze_run(folder / "run")});
  EXPECT_EQ(report.runs[0].resources.text(), "asked 64 GiB, used 1.4; 2 cores, 1.8 busy");
  const auto resources = testing::json_report(report)["runs"][0]["resources"];
  EXPECT_EQ(resources["asked_memory_mib"], 65536);
  EXPECT_EQ(resources["used_memory_mib"], 1401);
  EXPECT_NEAR(resources["busy_cores"].get<double>(), 1.8, 1e-9);
  EXPECT_EQ(resources["by_rank"][1]["memory_mib"], 701);
  EXPECT_FALSE(resources["by_rank"][1].contains("gpu_memory_mib"));
  const auto text = report_text(report, false);
  EXPECT_THAT(text, HasSubstr("resources   asked 64 GiB, used 1.4; 2 cores, 1.8 busy\n"));
  EXPECT_THAT(text, HasSubstr("rank  host   CPU %  memory MiB\n  0     node0     90         700\n"));
  const auto html = report_html(report, "");
  EXPECT_THAT(html, HasSubstr("<p class=\"sub\">asked 64 GiB, used 1.4; 2 cores, 1.8 busy</p>"));
  EXPECT_THAT(html, HasSubstr("of 64 GiB asked"));
}

TEST(Resources, OfSeveralNodesAreThoseOfOne) {
  const TemporaryFolder folder;
  trace_with_counters(false).write_run(folder / "run", facts());
  EXPECT_EQ(analyze_run(folder / "run").resources.text(),
            "asked 64 GiB, used 0.68; 2 cores, 0.9 busy (per node; the most of 2 nodes)");
}

// The line of metrics.jsonl counts from the start of the training on, and knows the highest memory.
TEST(Resources, AreAlsoThoseOfTheTraining) {
  const TemporaryFolder folder;
  trace_with_counters().write_run(folder / "run", facts());
  testing::write_text(folder / "run" / "metrics.jsonl",
                      R"({"step":9,"epoch":0,"cpu_percent":[50,60],"memory_mib":[900,100],"read_mb":[1,2],)"
                      R"("written_mb":[3,4],"gpu_percent":[40,null],"gpu_memory_mib":[2048,null]})"
                      "\n");
  const auto report = report_of({analyze_run(folder / "run")});
  const auto rows = testing::json_report(report)["runs"][0]["resources"]["by_rank"];
  EXPECT_EQ(rows[0]["memory_mib"], 900);
  EXPECT_EQ(rows[1]["memory_mib"], 701);
  EXPECT_EQ(rows[1]["cpu_percent"], 60);
  EXPECT_EQ(rows[0]["gpu_memory_mib"], 2048);
  EXPECT_FALSE(rows[1].contains("gpu_percent"));
  EXPECT_THAT(report_text(report, false), HasSubstr("written MB  GPU %  GPU memory MiB"));
}

// A line of an earlier start with another number of ranks.
TEST(Resources, OfOtherRanksDoNotCount) {
  const TemporaryFolder folder;
  trace_with_counters().write_run(folder / "run", facts());
  testing::write_text(folder / "run" / "metrics.jsonl",
                      "{\"step\":9,\"cpu_percent\":[50,60,70],\"memory_mib\":[9000,9000,9000]}\n");
  EXPECT_EQ(analyze_run(folder / "run").resources.text(), "asked 64 GiB, used 1.4; 2 cores, 1.8 busy");
}

TEST(Resources, OfManyRanksAreThreeRows) {
  const TemporaryFolder folder;
  TraceBuilder trace(20);
  for (int rank = 0; rank < 20; ++rank) {
    for (int step = 0; step < 12; ++step) trace.step(rank, step, step * second_ns, (step + 1) * second_ns);
    trace.counter(rank, "memory MiB", second_ns, 100 * (rank + 1));
  }
  trace.write_run(folder / "run", {{"ranks", 20}});
  const auto text = report_text(report_of({analyze_run(folder / "run")}), false);
  EXPECT_THAT(text, HasSubstr("  least  of 20 ranks         100\n  mean   of 20 ranks       1,050\n"
                              "  most   of 20 ranks       2,000\n"));
  EXPECT_THAT(text, HasSubstr("resources   used 2 GiB (per node; the most of 20 nodes)"));
}

TEST(Resources, AreSilentIfNothingIsKnown) {
  const TemporaryFolder folder;
  TraceBuilder trace(2);
  for (int rank = 0; rank < 2; ++rank)
    for (int step = 0; step < 12; ++step) trace.step(rank, step, step * second_ns, (step + 1) * second_ns);
  trace.write_run(folder / "run", facts());
  const auto report = report_of({analyze_run(folder / "run")});
  EXPECT_EQ(report.runs[0].resources.text(), "");
  EXPECT_THAT(report_text(report, false), Not(HasSubstr("esources")));
  EXPECT_THAT(report_html(report, ""), Not(HasSubstr("<h2>Resources")));
  EXPECT_TRUE(testing::json_report(report)["runs"][0]["resources"]["busy_cores"].contains("unknown"));
}

TEST(Resources, AreAlsoInRecorders) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "recorder");
  const SyntheticRun synthetic;
  for (int rank = 0; rank < synthetic.ranks; ++rank) synthetic.record(folder / "recorder", rank);
  const auto ranks = analyze_run(folder.path()).resources.ranks;
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_EQ(ranks[2].use.memory_mib, 512);
  EXPECT_NEAR(ranks[0].use.cpu_percent.value_or(0), 103.3, 0.2);
}

TEST(Resources, HaveShortFigures) {
  EXPECT_EQ(gib_text(65536), "64");
  EXPECT_EQ(gib_text(1331.2), "1.3");
  EXPECT_EQ(gib_text(256), "0.25");
  EXPECT_EQ(gib_text(1024 * 1500.4), "1500");
}

}  // namespace
}  // namespace farandole
