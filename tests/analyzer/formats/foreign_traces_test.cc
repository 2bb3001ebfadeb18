// Traces of other programs, with known answers: PyTorch's profiler, Horovod, generic Chrome traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "analyzer/formats/horovod_file.h"
#include "analyzer/formats/kineto_file.h"
#include "analyzer/formats/nsys_file.h"
#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"
#include "lane.h"
#include "mutation.h"

#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

using nlohmann::json;
using testing::contents_of;
using namespace ::testing;
using testing::execute;
using testing::horovod_text;
using testing::KinetoFile;
using testing::nsys_tables;

// Steps of 100 ms: kernels from 10 to 60, the collective from 50 to 80, a copy from 75 to 90, otherwise idle.
// The clock of the other rank is `ahead`, and this rank arrives at the collective 5 ms later.
KinetoFile kineto_of(int rank, double ahead_us = 0) {
  KinetoFile file(rank);
  for (int step = 0; step < 12; ++step) {
    const double t = 1e6 + step * 1e5 + ahead_us;
    file.cpu("user_annotation", "ProfilerStep#" + std::to_string(step + 5), t, t + 1e5);
    file.cpu("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t, t + 4e3);
    file.cpu("user_annotation", "Optimizer.step#SGD.step", t + 8e4, t + 9e4);
    file.gpu("gpu_user_annotation", "ProfilerStep#" + std::to_string(step + 5), 7, t, t + 1e5);
    file.gpu("kernel", "void gemm<float>(int)", 7, t + 1e4, t + 4e4);
    file.gpu("kernel", "void relu<float>(int)", 7, t + 4e4, t + 6e4);
    file.all_reduce(t + (rank == 1 ? 5.5e4 : 5e4), t + 8e4);
    file.gpu("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, t + 7.5e4, t + 9e4);
  }
  return file;
}

TEST(Kineto, IsReadAsHolisticTraceAnalysisReadsIt) {
  const TemporaryFolder folder;
  testing::write_text(folder / "host_1.pt.trace.json", kineto_of(1, 7.25e6).text());
  testing::write_gzip(folder / "host_0.pt.trace.json.gz", kineto_of(0).text());
  testing::write_text(folder / "run.json", R"({"ranks":2,"global_batch":256})");
  const auto run = analyze_run(folder.path());
  const auto& metrics = run.metrics;
  ASSERT_THAT(metrics.ranks, SizeIs(2));
  EXPECT_TRUE(metrics.warnings.empty());
  EXPECT_DOUBLE_EQ(*metrics.throughput.value, 256 * 12 / 1.18);
  for (const auto& rank : metrics.ranks) {
    ASSERT_TRUE(rank.gpu);
    // From the start of the first kernel at 10 ms to the end of the last copy at 1,190 ms.
    EXPECT_EQ(rank.gpu->window, 1'180'000'000);
    EXPECT_EQ(rank.gpu->compute, 12 * 50'000'000);
    EXPECT_EQ(rank.gpu->communication_only, 12 * 20'000'000);
    EXPECT_EQ(rank.gpu->memcpy_only, 12 * 10'000'000);
    EXPECT_EQ(rank.gpu->idle, 11 * 20'000'000);
    EXPECT_EQ(rank.gpu->kernels, 12 * 70'000'000);
  }
  EXPECT_EQ(metrics.ranks[0].overlap, 12 * 10'000'000);
  EXPECT_EQ(metrics.ranks[1].overlap, 12 * 5'000'000);
  EXPECT_EQ(metrics.ranks[1].communication, 12 * 25'000'000);
  EXPECT_DOUBLE_EQ(*metrics.overlap.value, 15.0 / 55);
  EXPECT_THAT(metrics.window.steps, SizeIs(12));
  EXPECT_EQ(metrics.window.step_numbers.front(), 5);
  // Clocks are aligned by the ends of collectives.
  ASSERT_THAT(metrics.collectives, SizeIs(1));
  EXPECT_EQ(metrics.collectives[0].operation, "allreduce");
  EXPECT_EQ(metrics.collectives[0].count, 12U);
  EXPECT_DOUBLE_EQ(metrics.collectives[0].bytes.value.value(), 4e6);
  EXPECT_DOUBLE_EQ(metrics.collectives[0].transfer_us, 25'000);
  EXPECT_DOUBLE_EQ(*metrics.collectives[0].algbw_gbps.value, 0.16);
  EXPECT_NEAR(metrics.clock_floor_ms, 0, 1e-9);
  EXPECT_DOUBLE_EQ(quantile(metrics.ranks[1].step_lateness_ms, 0.5), 5);
  EXPECT_FALSE(metrics.serialisation.value);
  const auto report = report_of({run});
  EXPECT_EQ(testing::json_report(report)["runs"][0]["gpu"]["compute"], 600.0 / 1180);
  EXPECT_THAT(report_text(report, false), HasSubstr("utilization"));
  EXPECT_THAT(report_html(report, ""), HasSubstr("What the GPUs do"));
  // All figures use the same denominator.
  EXPECT_THAT(report_html(report, ""), HasSubstr(">71.2 %<"));
  EXPECT_EQ(testing::json_report(report)["runs"][0]["gpu"]["utilization"], 840.0 / 1180);
  std::map<std::string, Figure> figures;
  for (const auto& [name, figure] : figures_of({&metrics})) figures[name] = figure;
  EXPECT_DOUBLE_EQ(*figures["parallel"].value, *metrics.parallel_efficiency.value);
  EXPECT_DOUBLE_EQ(*figures["throughput"].value, *metrics.throughput.value);
  EXPECT_DOUBLE_EQ(*figures["wait_fraction"].value, *metrics.fraction(&RankMetrics::waiting).value);
  const auto run_json = testing::json_report(report)["runs"][0];
  const auto expect_around = [&](const char* key, const json& value) {
    const auto& range = run_json["ci95"][key];
    ASSERT_TRUE(range.is_array()) << key;
    EXPECT_LE(range[0], value) << key;
    EXPECT_GE(range[1], value) << key;
  };
  expect_around("communication_fraction", run_json["communication"]["fraction"]);
  for (const auto* key : {"exposed_fraction", "wait_fraction", "transfer_fraction"})
    expect_around(key, run_json["communication"][key]);
  expect_around("gpu_utilization", run_json["gpu"]["utilization"]);
  EXPECT_LE(metrics.parallel_ci95->low, *metrics.parallel_efficiency.value);
  EXPECT_GE(metrics.parallel_ci95->high, *metrics.parallel_efficiency.value);
}

// Steps of three kinds: with another kernel, with another collective, and with neither.
TEST(Kineto, KnowsHowWellItsFractionsAreKnown) {
  const TemporaryFolder folder;
  auto file = kineto_of(0);
  for (int step = 0; step < 12; ++step) {
    const double t = 1e6 + step * 1e5;
    if (step % 3 == 0) file.gpu("kernel", "void add<float>(int)", 7, t + 9e4, t + 9.8e4);
    if (step % 3 == 1) file.all_reduce(t + 8.2e4, t + 8.9e4);
  }
  testing::write_text(folder / "trace.json", file.text());
  const auto metrics = analyze_run(folder / "trace.json").metrics;
  const auto expect_around = [](const std::optional<Range>& range, double value) {
    ASSERT_TRUE(range);
    EXPECT_LT(range->low, value);
    EXPECT_GT(range->high, value);
    EXPECT_LT(range->high - range->low, 0.3 * value);
  };
  expect_around(metrics.communication_ci95, *metrics.fraction(&RankMetrics::communication).value);
  expect_around(metrics.exposed_ci95, *metrics.fraction(&RankMetrics::exposed).value);
  expect_around(metrics.utilization_ci95, gpu_shares(metrics)->utilization);
  EXPECT_FALSE(metrics.waiting_ci95);  // of one rank of several
  EXPECT_FALSE(metrics.transfer_ci95);
}

// autograd's operators run on a separate thread while the training thread is in Python.
TEST(Kineto, FindsTheBackwardOfOtherThreads) {
  const TemporaryFolder folder;
  auto file = kineto_of(0);
  for (int step = 0; step < 12; ++step) {
    const double t = 1e6 + step * 1e5;
    file.operation(77, "autograd::engine::evaluate_function: MmBackward0", t + 3e4, t + 6e4);
    file.operation(77, "aten::mm", t + 3.1e4, t + 5e4);
    file.operation(77, "autograd::engine::evaluate_function: AddBackward0", t + 6e4, t + 8.5e4);
  }
  testing::write_text(folder / "trace.json", file.text());
  const auto phases = analyze_run(folder / "trace.json").metrics.ranks[0].phases;
  // The optimizer runs from 80 ms on. Work that overlaps with it counts as optimizer.
  EXPECT_EQ(phases[static_cast<std::size_t>(Phase::backward)], 12 * 50'000'000);
  EXPECT_EQ(phases[static_cast<std::size_t>(Phase::optimizer)], 12 * 10'000'000);
}

TEST(Kineto, OfOneFileIsOneRankOfSeveral) {
  const TemporaryFolder folder;
  testing::write_text(folder / "trace.json", kineto_of(1).text());
  const auto run = analyze_run(folder / "trace.json");
  ASSERT_THAT(run.metrics.ranks, SizeIs(1));
  EXPECT_EQ(run.metrics.ranks[0].rank, 1);
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("no events of rank 0 (of 2)")));
}

TEST(Kineto, NamesDamagedAndDoubledFiles) {
  const TemporaryFolder folder;
  testing::write_text(folder / "a.json", kineto_of(0).text());
  testing::write_text(folder / "b.json", kineto_of(0).text());
  const auto text = kineto_of(1).text();
  testing::write_text(folder / "c.json", text.substr(0, text.size() / 2));
  testing::write_text(folder / "d.json", R"({"schemaVersion":1,"traceEvents":[]})");
  testing::write_text(folder / "e.json", "");
  testing::write_text(folder / "f.json.gz", std::string("\x1f\x8b\x08\0garbage", 11));
  const auto run = analyze_run(folder.path());
  EXPECT_THAT(run.metrics.ranks, SizeIs(2));
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("rank 0 is in")));
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("c.json")));
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("d.json, e.json, f.json.gz are left out")));
}

TEST(Kineto, OfTwoCapturesClaimsNothingOfClocks) {
  const TemporaryFolder folder;
  auto shorter = KinetoFile(1);
  shorter.all_reduce(5e6, 5.1e6);
  testing::write_text(folder / "a.json", kineto_of(0).text());
  testing::write_text(folder / "b.json", shorter.text());
  const auto run = analyze_run(folder.path());
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("the clock of rank 1 could not be aligned")));
  EXPECT_TRUE(run.stragglers.empty());
  EXPECT_TRUE(run.wait_causes.empty());
  EXPECT_EQ(run.metrics.window.length(), 1'190'000'000);  // laid beside each other: both begin together
  EXPECT_FALSE(run.metrics.fraction(&RankMetrics::waiting).value);
  const auto report = testing::json_of_run(run);
  EXPECT_TRUE(report["communication"]["wait_fraction"].contains("unknown"));
  EXPECT_TRUE(report["communication"]["transfer_fraction"].contains("unknown"));
  EXPECT_TRUE(report["communication"]["collectives"][0]["wait_us"].contains("unknown"));
  EXPECT_TRUE(report["critical_path"].contains("unknown"));
  EXPECT_EQ(report["by_rank"][1]["lateness_ms"]["unknown"], "this rank's clock could not be aligned");
  EXPECT_TRUE(report["by_rank"][1]["wait_s"].contains("unknown"));
}

// Ranks 2 and 5 of a run. The list of unknown clocks uses rank numbers, not positions.
TEST(Kineto, OfSomeRanksKnowsWhoseClockIsUnknown) {
  const TemporaryFolder folder;
  auto file = [](int rank, bool other) {
    auto kineto = KinetoFile(rank, 6);
    for (int i = 0; i < (other ? 3 : 8); ++i) kineto.all_reduce(1e6 + i * 1e5, 1.05e6 + i * 1e5);
    kineto.gpu("kernel", "void gemm<float>(int)", 7, 1e6, 2e6);
    return kineto.text();
  };
  testing::write_text(folder / "a.json", file(2, false));
  testing::write_text(folder / "b.json", file(4, false));
  testing::write_text(folder / "c.json", file(5, true));
  const auto metrics = analyze_run(folder.path()).metrics;
  ASSERT_THAT(metrics.ranks, SizeIs(3));
  EXPECT_EQ(metrics.size(), 6U);
  EXPECT_TRUE(metrics.ranks[0].clock_known);
  EXPECT_TRUE(metrics.ranks[1].clock_known);
  EXPECT_FALSE(metrics.ranks[2].clock_known);
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("the clock of rank 5 could not be aligned")));
  EXPECT_TRUE(metrics.no_waiting.empty());  // of the other two
  EXPECT_TRUE(metrics.matches.parts[2].empty());
}

// Different group names with equal hashes once got the same number. Groups of two files match by name.
TEST(Kineto, TellsThousandsOfGroupsApart) {
  const TemporaryFolder folder;
  constexpr int groups = 3000;
  for (int rank = 0; rank < 2; ++rank) {
    auto file = KinetoFile(rank, 2, "gloo");
    for (int i = 0; i < groups; ++i) {
      const int which = rank == 0 ? i : groups - 1 - i;  // each in an order of its own
      const double t = 1e6 + which * 1e3;
      file.gloo("gloo:all_reduce", 50, t, t + 500, 1000 + which);
    }
    file.operation(39, "aten::mm", 1e6, 4e6);
    testing::write_text(folder / ("rank" + std::to_string(rank) + ".json"), file.text());
  }
  const auto metrics = analyze_run(folder.path()).metrics;
  EXPECT_EQ(metrics.matches.matches.size(), static_cast<std::size_t>(groups));
  EXPECT_EQ(metrics.matches.unmatched, 0U);
  for (const auto& match : metrics.matches.matches) ASSERT_EQ(match.first_arrival, match.last_arrival);
}

TEST(Horovod, SaysWhenEachRankWasReady) {
  const TemporaryFolder folder;
  testing::write_text(folder / "timeline.json", horovod_text());
  const auto run = analyze_run(folder / "timeline.json");
  const auto& metrics = run.metrics;
  ASSERT_THAT(metrics.ranks, SizeIs(3));
  ASSERT_THAT(metrics.collectives, SizeIs(2));
  EXPECT_EQ(metrics.collectives[0].operation, "allreduce");
  EXPECT_EQ(metrics.collectives[0].count, 10U);
  EXPECT_DOUBLE_EQ(metrics.collectives[0].wait_us.value.value(), 20'000);
  // The tensor is on the network from 34 to 39 ms.
  EXPECT_DOUBLE_EQ(metrics.collectives[0].transfer_us, 5'000);
  testing::write_text(folder / "older.json", horovod_text(false));
  const auto older = analyze_run(folder / "older.json").metrics;
  EXPECT_DOUBLE_EQ(older.collectives[0].wait_us.value.value(), 20'000);
  EXPECT_DOUBLE_EQ(older.collectives[0].transfer_us, 10'000);
  EXPECT_THAT(metrics.overlap.unknown, HasSubstr("does not record what the ranks compute"));
  EXPECT_FALSE(metrics.parallel_efficiency.value);
  EXPECT_FALSE(metrics.no_gpu.empty());
  const auto report = testing::json_report(report_of({run}));
  EXPECT_TRUE(report["runs"][0]["communication"]["overlap"].contains("unknown"));
  EXPECT_THAT(run.verdict, HasSubstr("3 ranks"));
}

constexpr const char* begins_and_ends = R"([
{"ph":"B","cat":"forward","name":"f","pid":1,"tid":1,"ts":0},
{"ph":"B","cat":"data","name":"d","pid":1,"tid":1,"ts":10},
{"ph":"E","pid":1,"tid":1,"ts":30},
{"ph":"E","pid":1,"tid":1,"ts":100},
{"ph":"E","pid":1,"tid":1,"ts":200},
{"ph":"B","cat":"backward","name":"b","pid":1,"tid":1,"ts":100}
])";

TEST(ChromeTrace, PairsBeginsAndEnds) {
  const TemporaryFolder folder;
  testing::write_text(folder / "t.json", begins_and_ends);
  const auto run = analyze_run(folder / "t.json");
  ASSERT_THAT(run.metrics.ranks, SizeIs(1));
  EXPECT_EQ(run.metrics.ranks[0].phases[static_cast<std::size_t>(Phase::forward)], 80'000);
  EXPECT_EQ(run.metrics.ranks[0].phases[static_cast<std::size_t>(Phase::data)], 20'000);
  EXPECT_EQ(run.metrics.window.length(), 100'000);
}

// Any damage leads to a report or to an error of one line.
TEST(ForeignTraces, SurviveMutations) {
  const TemporaryFolder folder;
  execute(folder / "report.sqlite", nsys_tables(true));
  testing::write_gzip(folder / "kineto.gz", kineto_of(0).text());
  const std::vector<std::string> sound = {kineto_of(0).text(), horovod_text(), begins_and_ends,
                                          contents_of(folder / "report.sqlite"),
                                          contents_of(folder / "kineto.gz")};
  std::mt19937 random(seed(9));
  for (int round = 0; round < rounds(120, 10'000); ++round) {
    const auto which = static_cast<std::size_t>(round) % sound.size();
    const auto bytes = mutated(sound[which], random, 6);
    auto file = folder / ("mutated" + std::to_string(round));
    if (round % 4 == 0) {  // beside a sound one, as of another rank
      const auto* const ending = which == 3 ? ".sqlite" : which == 4 ? ".json.gz" : ".json";
      std::filesystem::create_directory(file);
      testing::write_text(file / ("a" + std::string(ending)), sound[which]);
      testing::write_text(file / ("b" + std::string(ending)), bytes);
    } else {
      testing::write_text(file, bytes);
    }
    try {
      const auto report = report_of({analyze_run(file)});
      EXPECT_FALSE(testing::json_report(report).empty());
      report_text(report, false);
      report_html(report, "");
    } catch (const CorruptInput& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    } catch (const UserError&) {
      EXPECT_EQ(round % 4, 0) << "a folder without a profiler's trace is none of ours";
    }
    std::filesystem::remove_all(file);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace farandole
