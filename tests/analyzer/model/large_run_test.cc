// Compares the analyzer with the generator of large runs, which computes the same figures in another way.
#include "tools/large_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "farandole/analyzer/report/report.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;
using testing::LargeRun;
using ::testing::SizeIs;

struct Analyzed {
  LargeRun::Truth truth;
  RunReport report;

  explicit Analyzed(const LargeRun& run) {
    const TemporaryFolder folder;
    truth = run.write(folder / "run", static_cast<int>(warmup_of(run.steps)));
    report = analyze_run(folder / "run");
  }
};

void expect_exact(const Analyzed& analyzed) {
  const auto& metrics = analyzed.report.metrics;
  const auto& truth = analyzed.truth;
  EXPECT_TRUE(metrics.warnings.empty());
  EXPECT_EQ(metrics.window.length(), truth.window);
  ASSERT_EQ(metrics.ranks.size(), truth.compute.size());
  for (std::size_t r = 0; r < metrics.ranks.size(); ++r) {
    EXPECT_EQ(metrics.ranks[r].compute, truth.compute[r]);
    EXPECT_EQ(metrics.ranks[r].communication, truth.communication[r]);
    EXPECT_EQ(metrics.ranks[r].overlap, truth.overlap[r]);
    EXPECT_EQ(metrics.ranks[r].waiting, truth.waiting[r]);
    if (metrics.ranks.size() == 1) continue;
    ASSERT_EQ(metrics.ranks[r].step_lateness_ms.size(), truth.lateness.size());
    for (std::size_t s = 0; s < truth.lateness.size(); ++s)
      EXPECT_NEAR(metrics.ranks[r].step_lateness_ms[s], static_cast<double>(truth.lateness[s][r]) * 1e-6,
                  1e-9);
  }
  double steps = 0;
  double waited = 0;
  for (const auto& step : metrics.steps) steps += step.overlap;
  for (const auto& cause : analyzed.report.wait_causes) waited += cause.seconds;
  double overlap = 0;
  double waiting = 0;
  for (const auto& rank : metrics.ranks) {
    overlap += static_cast<double>(rank.overlap);
    waiting += static_cast<double>(rank.waiting);
  }
  EXPECT_DOUBLE_EQ(steps, overlap);
  EXPECT_NEAR(waited, waiting * 1e-9, 1e-9);
  auto path = metrics.critical_path.transfer;
  for (const auto& rank : metrics.critical_path.ranks) path += rank.total();
  EXPECT_EQ(path, truth.window);
  EXPECT_DOUBLE_EQ(*metrics.serialisation.value * *metrics.transfer_efficiency.value,
                   *metrics.communication_efficiency.value);
}

void expect_only_straggler(const Analyzed& analyzed, std::size_t rank, LatePattern pattern,
                           const char* phase) {
  expect_exact(analyzed);
  ASSERT_THAT(analyzed.report.stragglers, SizeIs(1));
  EXPECT_EQ(analyzed.report.stragglers[0].rank_index, rank);
  EXPECT_EQ(analyzed.report.stragglers[0].pattern, pattern);
  EXPECT_EQ(analyzed.report.stragglers[0].phase, phase);
}

TEST(LargeRun, IsMeasuredExactly) {
  for (const int ranks : {1, 2, 3, 8}) {
    LargeRun run{.ranks = ranks};
    expect_exact(Analyzed(run));
  }
}

TEST(LargeRun, NamesTheRankWithASlowBackward) {
  LargeRun run{.slow_rank = 1, .slow_ns = 200'000'000};
  const Analyzed analyzed(run);
  expect_only_straggler(analyzed, 1, LatePattern::chronic, "backward");
  EXPECT_NEAR(analyzed.report.stragglers[0].lateness_ms, 200, 0.2);
  EXPECT_EQ(analyzed.report.wait_causes[0].phase, "backward");
  EXPECT_EQ(analyzed.report.wait_causes[0].rank_index, 1U);
  EXPECT_EQ(analyzed.report.metrics.critical_path.ranks[0].rank_index, 1U);
}

TEST(LargeRun, NamesTheRanksOfANodeThatIs5PercentSlow) {
  LargeRun run{.ranks = 12, .slow_node = 1.05};
  const Analyzed analyzed(run);
  expect_exact(analyzed);
  ASSERT_THAT(analyzed.report.stragglers, SizeIs(4));
  for (const auto& straggler : analyzed.report.stragglers) {
    EXPECT_EQ(analyzed.report.metrics.ranks[straggler.rank_index].host, "node2");
    EXPECT_EQ(straggler.pattern, LatePattern::chronic);
    EXPECT_THAT(straggler.phase, HasSubstr("backward"));
  }
}

TEST(LargeRun, NamesTheOnePause) {
  LargeRun run{.steps = 100, .pausing_rank = 5, .pause_ns = 1'000'000'000};
  const Analyzed analyzed(run);
  expect_only_straggler(analyzed, 5, LatePattern::one_off, "forward");
  EXPECT_NEAR(analyzed.report.stragglers[0].lateness_ms, 1000, 0.2);
}

TEST(LargeRun, NamesTheRankThatLoadsSlowly) {
  LargeRun run{.data_rank = 3, .data_ns = 8'000'000};
  const Analyzed analyzed(run);
  expect_only_straggler(analyzed, 3, LatePattern::chronic, "data");
  EXPECT_EQ(analyzed.report.wait_causes[0].phase, "data");
}

// The late rank changes from step to step. No rank is late more often than the others.
TEST(LargeRun, DoesNotCallNoiseChronic) {
  for (const int ranks : {2, 6}) {
    LargeRun run{.ranks = ranks, .steps = 200, .noise_ns = 20'000'000};
    const Analyzed analyzed(run);
    expect_exact(analyzed);
    EXPECT_FALSE(analyzed.report.stragglers.empty());
    for (const auto& straggler : analyzed.report.stragglers)
      EXPECT_EQ(straggler.pattern, LatePattern::rotating) << ranks;
  }
}

// On an ideal network, only the ranks' own work and their waiting for each other remain.
TEST(LargeRun, IsAsShortAsItsWorkOnAnIdealNetwork) {
  LargeRun run{.noise_ns = 0};
  run.step.buckets = {{40'000'000, 10'000'000, 1'000'000}};  // all of it exposed
  const Analyzed analyzed(run);
  const auto& metrics = analyzed.report.metrics;
  const double steps = static_cast<double>(metrics.window.steps.size());
  const auto window = static_cast<double>(metrics.window.length());
  EXPECT_DOUBLE_EQ(*metrics.transfer_efficiency.value, (window - steps * 10e6) / window);
  EXPECT_DOUBLE_EQ(*metrics.serialisation.value, steps * 65e6 / (window - steps * 10e6));
  EXPECT_EQ(metrics.critical_path.transfer, static_cast<std::int64_t>(steps) * 10'000'000);
}

}  // namespace
}  // namespace farandole
