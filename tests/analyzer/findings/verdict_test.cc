#include "farandole/analyzer/findings/verdict.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include "analyzer/formats/kineto_file.h"
#include "analyzer/json_report.h"
#include "analyzer/metrics_identities.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/report/report.h"

namespace farandole {
namespace {

using testing::expect_identities;
using ::testing::HasSubstr;
using testing::KinetoFile;
using ::testing::Not;
using testing::TraceBuilder;

constexpr std::int64_t one_ms = TraceBuilder::ms;

RunReport report_on(const TraceBuilder& trace, const nlohmann::json& run_json = {}) {
  const TemporaryFolder folder;
  trace.write_run(folder / "run", run_json);
  auto report = analyze_run(folder / "run");
  expect_identities(report.metrics);
  return report;
}

std::string titles_of(const RunReport& report) {
  std::string titles;
  for (const auto& finding : report.findings) titles += finding.title + ";";
  return titles;
}

// Rank 0 needs `slow` more for `phase` than rank 1, which waits. Both load data for 10 ms and compute 40.
TraceBuilder slow_rank(std::int64_t slow, const std::string& phase) {
  TraceBuilder trace(2, true);
  std::int64_t t = 0;
  for (int step = 0; step < 20; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto more = [&](const std::string& name) { return rank == 0 && phase == name ? slow : 0; };
      auto at = t;
      trace.span(rank, 0, "data", at, at + 10 * one_ms + more("data"));
      at += 10 * one_ms + more("data");
      trace.span(rank, 0, "backward", at, at + 40 * one_ms + more("backward"));
      at += 40 * one_ms + more("backward");
      trace.span(rank, 0, "wait", at, t + slow + 52 * one_ms);
      trace.collective(rank, 1, step, at, t + slow + 52 * one_ms);
      trace.step(rank, step, t, t + slow + 52 * one_ms);
    }
    t += slow + 52 * one_ms;
  }
  return trace;
}

TEST(Verdict, PutsASlowRanksDataLoadingUnderTheWaitingForIt) {
  const auto report = report_on(slow_rank(150 * one_ms, "data"));
  EXPECT_THAT(report.verdict, HasSubstr("the largest loss, 74.3 %, is waiting for ranks that arrive late at "
                                        "collectives (mostly rank 0's data)"));
  ASSERT_EQ(report.findings.size(), 2U) << titles_of(report);
  EXPECT_EQ(report.findings[0].title, "Ranks wait for rank 0");
  EXPECT_THAT(report.findings[0].evidence,
              HasSubstr("74.3 % of the ranks' time is this delay and waiting for it"));
  // What both ranks need.
  EXPECT_EQ(report.findings[1].title, "Data loading delays training");
  EXPECT_NEAR(report.findings[1].gain_percent, 100.0 * 10 / 202, 0.1);
}

// Half of the ranks' time is waiting, but without it, the run is 75 % shorter.
TEST(Verdict, HasAGainOfAtLeastTheLongestWait) {
  const auto report = report_on(slow_rank(158 * one_ms, "backward"));
  const auto& finding = report.findings.front();
  EXPECT_THAT(finding.evidence, HasSubstr("37.6 % of the ranks' time is waiting for it"));
  EXPECT_NEAR(finding.gain_percent, 100.0 * 158 / 210, 0.1);
}

// Waiting for several ranks and phases is 24 %, more than transfer with 15 %, and each part of it is less.
TEST(Verdict, NamesTheLargestRowOfTheTable) {
  TraceBuilder trace(4, true);
  for (int step = 0; step < 24; ++step)
    for (int rank = 0; rank < 4; ++rank) {
      const auto t = step * 100 * one_ms;
      const bool late = rank == step % 4, in_forward = step % 8 < 4;
      const auto forward = t + (late && in_forward ? 42 : 10) * one_ms;
      const auto ready = t + (late ? 85 : 53) * one_ms;
      trace.step(rank, step, t, t + 100 * one_ms);
      trace.span(rank, 0, "forward", t, forward);
      trace.span(rank, 0, "backward", forward, ready);
      trace.span(rank, 0, "wait", ready, t + 100 * one_ms);
      trace.collective(rank, 1, step, ready, t + 100 * one_ms);
    }
  const auto report = report_on(trace);
  const auto groups = group_losses(report.losses);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].share, Share::waiting);
  EXPECT_NEAR(groups[0].fraction, 0.24, 1e-6);
  for (const auto& part : groups[0].parts) EXPECT_LT(part.fraction, groups[1].fraction);
  EXPECT_THAT(report.verdict, HasSubstr("the largest loss, 24.0 %, is waiting"));
  EXPECT_EQ(report.findings.at(0).title, "Different ranks are late in different steps");
  EXPECT_THAT(report_text(report_of({report}), false), HasSubstr("  waiting       "));
}

// Two ranks share a core, so their compute takes twice as long. Two others wait for them.
TraceBuilder shared_core(bool idle_cores) {
  TraceBuilder trace(4, true);
  for (int rank = 0; rank < 4; ++rank) {
    const bool shares = rank < 2;
    for (int step = 0; step < 20; ++step) {
      const auto t = step * 100 * one_ms, ready = t + (shares ? 80 : 40) * one_ms;
      trace.step(rank, step, t, t + 100 * one_ms);
      trace.span(rank, 0, "backward", t, ready);
      trace.span(rank, 0, "wait", ready, t + 90 * one_ms);
      trace.collective(rank, 1, step, ready, t + 90 * one_ms);
      trace.span(rank, 0, "optimizer", t + 90 * one_ms, t + 100 * one_ms);
    }
    for (int second = 1; second <= 4; ++second) {
      trace.counter(rank, "core wait %", second * 500 * one_ms, shares ? 45 : 0);
      trace.counter(rank, "core", second * 500 * one_ms, shares ? 3 : 4 + rank);
    }
    if (idle_cores)
      trace.add({{"ph", "i"},
                 {"s", "t"},
                 {"cat", "other"},
                 {"name", "idle cores 0-2, 8"},
                 {"pid", rank + 1},
                 {"tid", TraceBuilder::tid(rank, 1)},
                 {"ts", 1.9e6}});
  }
  return trace;
}

TEST(Verdict, NamesRanksThatShareACoreAndIdleCores) {
  const auto report = report_on(shared_core(true));
  const auto& metrics = report.metrics;
  // 45 % of the 90 ms that are not the collective, which has its own part.
  EXPECT_EQ(metrics.ranks[0].core_wait, 18 * 405 * one_ms / 10);
  EXPECT_EQ(metrics.ranks[0].compute, 18 * 495 * one_ms / 10);
  EXPECT_EQ(metrics.ranks[2].core_wait, 0);
  EXPECT_DOUBLE_EQ(*metrics.parallel_efficiency.value, (2 * 49.5 + 2 * 50) / 400.0);
  // 40.5 % on two ranks, and 40 % of waiting for them on the others.
  EXPECT_THAT(report.verdict,
              HasSubstr("the largest loss, 40.2 %, is waiting for a core: ranks 0, 1 share core 3 "
                        "of node0."));
  const auto& finding = report.findings.at(0);
  EXPECT_EQ(finding.title, "Ranks wait for a core");
  EXPECT_THAT(finding.evidence, HasSubstr("share core 3 of node0, while cores 0-2, 8 of node0 are idle"));
  EXPECT_THAT(finding.change, HasSubstr("--cpu-bind=cores"));
  EXPECT_THAT(titles_of(report), Not(HasSubstr("rank 0")));
  EXPECT_THAT(report_on(shared_core(false)).findings.at(0).evidence, Not(HasSubstr("idle")));
}

// The threads of collectives wait for cores as well. The wait of both once left no compute, and then the load
// balance was unknown.
TEST(Verdict, LeavesComputeIfTheWaitForCoresIsLongerThanIt) {
  TraceBuilder trace(2, true);
  for (int rank = 0; rank < 2; ++rank) {
    for (int step = 0; step < 20; ++step) {
      const auto t = step * 100 * one_ms;
      trace.step(rank, step, t, t + 100 * one_ms);
      trace.span(rank, 0, "backward", t, t + 40 * one_ms);
      trace.span(rank, 0, "wait", t + 40 * one_ms, t + 100 * one_ms);
      trace.collective(rank, 1, step, t + 40 * one_ms, t + 100 * one_ms);
    }
    for (int second = 1; second <= 4; ++second) trace.counter(rank, "core wait %", second * 500 * one_ms, 60);
  }
  const auto report = report_on(std::move(trace));
  EXPECT_DOUBLE_EQ(*report.metrics.parallel_efficiency.value, 0.16);
  EXPECT_DOUBLE_EQ(*report.metrics.load_balance.value, 1);
}

TEST(Verdict, OfATraceThatDoesNotRecordTheWaitForACore) {
  const auto report = testing::json_report(report_of({report_on(slow_rank(10 * one_ms, "data"))}));
  EXPECT_TRUE(report["runs"][0]["by_rank"][0]["core_wait_s"].contains("unknown"));
  const auto shared = testing::json_report(report_of({report_on(shared_core(false))}));
  EXPECT_DOUBLE_EQ(shared["runs"][0]["by_rank"][0]["core_wait_s"], 18 * 0.0405);
}

// A GPU that copies for 8 of 10 ms, as PyTorch's profiler records it, and as ROCm does.
TEST(Verdict, SaysCopiesIfTheGpuCopies) {
  for (const auto& [category, name] :
       std::vector<std::pair<std::string, std::string>>{{"gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"},
                                                        {"kernel", "__amd_rocclr_copyBuffer"},
                                                        {"kernel", "CopyHostToDevice"},
                                                        {"kernel", "Memcpy HtoD (Host -> Device)"}}) {
    KinetoFile file(0, 1);
    file.cpu("user_annotation", "ProfilerStep#3", 1000, 11000);
    file.operation(39, "aten::to", 1000, 10000);
    file.gpu(category, name, 7, 1000, 9000);
    file.gpu("kernel", "sgemm", 7, 9000, 10000);
    file.gpu(category, name, 7, 10000, 11000);
    const TemporaryFolder folder;
    testing::write_text(folder / "t.json", file.text());
    const auto report = analyze_run(folder / "t.json");
    EXPECT_THAT(report.verdict,
                HasSubstr("10.0 % of the time is useful compute; the largest loss, 90.0 %, is copies "
                          "from, to and within GPUs"));
    ASSERT_EQ(report.findings.size(), 1U) << titles_of(report);
    EXPECT_EQ(report.findings[0].title, "Copies delay the GPUs");
    EXPECT_NEAR(gpu_shares(report.metrics)->memcpy_only, 0.9, 1e-9) << name;
  }
}

// A profile without any kernel: the host's operators are no compute of the GPU.
TEST(Verdict, SaysCopiesIfTheGpuOnlyCopies) {
  KinetoFile file(0, 1);
  file.operation(39, "aten::to", 1000, 10000);
  file.gpu("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 1000, 10000);
  const TemporaryFolder folder;
  testing::write_text(folder / "t.json", file.text());
  EXPECT_THAT(analyze_run(folder / "t.json").verdict, HasSubstr("the largest loss, 100.0 %, is copies"));
}

// The host works for all of each step of 10 ms, in which 100 kernels have the same gap behind them. GPUs
// begin queued work within 10 µs.
TEST(Verdict, SaysWhyGpusAreIdleInTheWordsOfTheMetrics) {
  for (const auto& [gap_us, cause] :
       std::vector<std::pair<int, std::string>>{{5, "kernel wait"}, {25, "host wait"}}) {
    TraceBuilder trace(1);
    trace.thread(0, 2, "GPU 0 stream 7");
    for (int step = 0; step < 10; ++step) {
      const auto at = step * 10 * one_ms;
      trace.step(0, step, at, at + 10 * one_ms);
      trace.span(0, 0, "forward", at, at + 10 * one_ms);
      for (int k = 0; k < 100; ++k)
        trace.span(0, 2, "gpu_kernel", at + k * one_ms / 10, at + (k + 1) * one_ms / 10 - gap_us * 1000,
                   {{"step", step}}, "gemm");
    }
    const auto report = report_on(trace);
    EXPECT_EQ(titles_of(report), fmt::format("GPUs idle: {};", cause));
    EXPECT_THAT(report.findings.at(0).evidence,
                ::testing::AllOf(
                    HasSubstr(fmt::format("{:.1f} % of the ranks' time is time in which the GPUs are idle",
                                          double(gap_us))),
                    HasSubstr(fmt::format("({})", cause))));
    EXPECT_EQ(report.losses.at(0).name, fmt::format("GPUs idle: {}", cause));
    EXPECT_THAT(idle_text(report.metrics), HasSubstr(fmt::format("{} {:.1f}", cause, double(gap_us))));
  }
}

}  // namespace
}  // namespace farandole
