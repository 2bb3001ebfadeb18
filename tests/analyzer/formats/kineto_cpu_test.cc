// Traces of PyTorch's profiler without GPUs: phases from its operators, Gloo's collectives, waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/formats/kineto_file.h"
#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/report/report.h"

namespace farandole {
namespace {

using nlohmann::json;
using namespace ::testing;
using testing::KinetoFile;

constexpr double ms = 1e3;
constexpr auto index_of(Phase phase) {
  return static_cast<std::size_t>(phase);
}

// Written as by DistributedDataParallel on Gloo, with steps of 100 ms: data to 10, forward 10 to 30, loss
// to 32, backward operators 33 to 60, two all-reduces from 40 to 80 and from 61 to 90, copies of the
// buckets 90 to 92, SGD 92 to 98. Rank 1 arrives 4 ms late at both, on another thread, and in the other
// order in odd steps.
KinetoFile gloo_run(int rank, int steps, double ahead = 0) {
  KinetoFile file(rank, 2, "gloo");
  for (int step = 0; step < steps; ++step) {
    const double t = 1e6 + step * 100 * ms + ahead;
    const double late = rank == 1 ? 4 * ms : 0;
    const int swapped = rank == 1 ? step % 2 : 0;
    file.cpu("user_annotation", "ProfilerStep#" + std::to_string(step), t, t + 100 * ms);
    file.cpu("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t,
             t + 10 * ms);
    file.cpu("cpu_op", "aten::stack", t + 2 * ms, t + 8 * ms);
    file.cpu("user_annotation", "DistributedDataParallel.forward", t + 10 * ms, t + 30 * ms);
    file.cpu("cpu_op", "aten::linear", t + 11 * ms, t + 29 * ms);
    file.cpu("cpu_op", "aten::cross_entropy_loss", t + 30 * ms, t + 32 * ms);
    file.cpu("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", t + 33 * ms, t + 60 * ms);
    file.cpu("cpu_op", "AddmmBackward0", t + 34 * ms, t + 50 * ms);
    file.cpu("cpu_op", "aten::mm", t + 35 * ms, t + 49 * ms);
    file.cpu("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad", t + 90 * ms, t + 92 * ms);
    file.cpu("user_annotation", "Optimizer.step#SGD.step", t + 92 * ms, t + 98 * ms);
    file.gloo("gloo:all_reduce", 50 + swapped, t + 40 * ms + late, t + 80 * ms, 1'000'000);
    file.gloo("gloo:all_reduce", 51 - swapped, t + 61 * ms + late, t + 90 * ms, 250'000);
  }
  return file;
}

TEST(KinetoWithoutGpu, FindsPhasesAndGloosCollectives) {
  const TemporaryFolder folder;
  testing::write_text(folder / "rank_0.json", gloo_run(0, 10).text());
  testing::write_gzip(folder / "rank_1.json.gz", gloo_run(1, 10, 3.7e6).text());
  const auto run = analyze_run(folder.path());
  const auto& metrics = run.metrics;
  EXPECT_THAT(metrics.warnings, IsEmpty());
  ASSERT_THAT(metrics.ranks, SizeIs(2));
  ASSERT_THAT(metrics.window.steps, SizeIs(9));  // one of ten is warm-up
  const auto& phases = metrics.ranks[0].phases;
  EXPECT_EQ(phases[index_of(Phase::data)], 9 * 10'000'000);
  EXPECT_EQ(phases[index_of(Phase::forward)], 9 * 22'000'000);
  EXPECT_EQ(phases[index_of(Phase::backward)], 9 * 29'000'000);
  EXPECT_EQ(phases[index_of(Phase::optimizer)], 9 * 6'000'000);
  EXPECT_EQ(phases[index_of(Phase::wait)], 9 * 30'000'000);  // from the end of backward to the last one's end
  EXPECT_EQ(metrics.ranks[0].communication, 9 * 50'000'000);
  EXPECT_EQ(metrics.ranks[0].overlap, 9 * 20'000'000);
  ASSERT_THAT(metrics.collectives, SizeIs(1));
  EXPECT_EQ(metrics.collectives[0].operation, "all_reduce");
  EXPECT_EQ(metrics.collectives[0].count, 18U);
  EXPECT_DOUBLE_EQ(metrics.collectives[0].wait_us.value.value(), 2'000);
  EXPECT_DOUBLE_EQ(quantile(metrics.ranks[1].step_lateness_ms, 0.5), 4);
  EXPECT_THAT(metrics.no_gpu, HasSubstr("no GPU kernels"));
  const auto report = testing::json_report(report_of({run}));
  EXPECT_THAT(report["runs"][0]["gpu"]["unknown"].get<std::string>(), HasSubstr("no GPU kernels"));
}

TEST(KinetoWithoutGpu, CountsCollectivesBySizeWhereThreadsSwapThem) {
  const TemporaryFolder folder;
  testing::write_text(folder / "rank_0.json", gloo_run(0, 10).text());
  testing::write_text(folder / "rank_1.json", gloo_run(1, 10).text());
  const auto run = read_run(folder.path());
  const auto bytes = [&](std::size_t rank) {
    std::map<std::pair<int, std::uint32_t>, std::uint64_t> all;
    for (const auto& span : run.ranks[rank].collectives())
      all[{span.what.communicator, span.what.sequence}] = span.what.bytes;
    return all;
  };
  EXPECT_EQ(bytes(0), bytes(1));
  EXPECT_THAT(bytes(0), SizeIs(20));
}

// The trace of one rank does not contain the arrival of the others.
TEST(KinetoWithoutGpu, OfOneRankOfSeveralClaimsNothingOfWaiting) {
  const TemporaryFolder folder;
  testing::write_text(folder / "rank_1.json", gloo_run(1, 10).text());
  const auto run = analyze_run(folder / "rank_1.json");
  EXPECT_THAT(run.metrics.no_waiting, HasSubstr("only one of several ranks"));
  EXPECT_FALSE(run.metrics.fraction(&RankMetrics::waiting).value);
  const auto communication = testing::json_of_run(run)["communication"];
  EXPECT_TRUE(communication["wait_fraction"].contains("unknown"));
  EXPECT_TRUE(communication["transfer_fraction"].contains("unknown"));
  EXPECT_TRUE(communication["collectives"][0]["wait_us"].contains("unknown"));
  EXPECT_TRUE(communication["overlap"].is_number());
  EXPECT_THAT(report_text(report_of({run}), false), HasSubstr("Waiting is unknown"));
}

// The trace has only steps and user annotations, so useful time is unknown.
TEST(KinetoWithoutGpu, OfUnknownWorkClaimsNoCompute) {
  const TemporaryFolder folder;
  KinetoFile file(0, 1, "gloo");
  for (int step = 0; step < 3; ++step)
    file.cpu("user_annotation", "ProfilerStep#" + std::to_string(step), step * ms, (step + 1) * ms);
  testing::write_text(folder / "trace.json", file.text());
  const auto run = analyze_run(folder / "trace.json");
  EXPECT_FALSE(run.metrics.parallel_efficiency.value);
  EXPECT_THAT(run.findings, IsEmpty());
  EXPECT_EQ(report_text(report_of({run}), false).find("useful compute   "), std::string::npos);
}

TEST(KinetoWithoutGpu, TakesRanksFromNamesWhereFilesDoNotSay) {
  const TemporaryFolder folder;
  for (const int rank : {3, 11}) {
    auto text = json::parse(gloo_run(rank, 4).text());
    text.erase("distributedInfo");
    testing::write_text(folder / ("host-rank" + std::to_string(rank) + ".json"), text.dump());
  }
  const auto run = read_run(folder.path());
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(run.ranks[0].rank, 3);
  EXPECT_EQ(run.ranks[1].rank, 11);
  std::filesystem::rename(folder / "host-rank3.json", folder / "one.json");
  EXPECT_THAT(read_run(folder.path()).warnings, Contains(HasSubstr("does not contain its rank")));
}

}  // namespace
}  // namespace farandole
