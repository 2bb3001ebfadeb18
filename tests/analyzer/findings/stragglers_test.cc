#include "farandole/analyzer/findings/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/metrics_identities.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/findings/verdict.h"
#include "farandole/analyzer/findings/wait_causes.h"

namespace farandole {
namespace {

using testing::expect_identities;
using ::testing::HasSubstr;
using testing::measure_trace;
using ::testing::SizeIs;
using testing::TraceBuilder;

constexpr std::int64_t ms = TraceBuilder::ms;

// Rank 1's backward takes 200 ms more, so it arrives 200 ms late at each collective.
TraceBuilder straggling_trace(int steps, double residual_us) {
  TraceBuilder trace(3);
  trace.other_data()["clock_residual_us"] = {0.0, residual_us, residual_us};
  for (int step = 0; step < steps; ++step)
    for (int rank = 0; rank < 3; ++rank) {
      const std::int64_t t = step * 1000 * ms;
      const auto backward_end = t + (rank == 1 ? 700 : 500) * ms;
      trace.step(rank, step, t, t + 1000 * ms);
      trace.span(rank, 0, "forward", t, t + 200 * ms);
      trace.span(rank, 0, "backward", t + 200 * ms, backward_end);
      trace.span(rank, 0, "wait", backward_end, t + 750 * ms);
      trace.collective(rank, 1, step, backward_end, t + 750 * ms);
      trace.span(rank, 0, "optimizer", t + 750 * ms, t + 1000 * ms);
    }
  return trace;
}

TEST(Stragglers, NameAnInjectedStraggler) {
  const auto metrics = measure_trace(straggling_trace(21, 5.0));
  expect_identities(metrics);
  EXPECT_DOUBLE_EQ(quantile(metrics.ranks[1].step_lateness_ms, 0.5), 200);
  EXPECT_DOUBLE_EQ(quantile(metrics.ranks[0].step_lateness_ms, 0.95), 0);
  EXPECT_EQ(metrics.ranks[0].waiting, 19 * 200 * ms);
  EXPECT_EQ(metrics.ranks[1].waiting, 0);
  EXPECT_EQ(metrics.ranks[1].transfer, 19 * 50 * ms);
  const auto stragglers = find_stragglers(metrics);
  ASSERT_THAT(stragglers, SizeIs(1));
  EXPECT_EQ(metrics.ranks[stragglers[0].rank_index].rank, 1);
  EXPECT_EQ(stragglers[0].pattern, LatePattern::chronic);
  EXPECT_EQ(stragglers[0].phase, "backward");
  EXPECT_DOUBLE_EQ(stragglers[0].lateness_ms, 200);
  EXPECT_THAT(verdict_of(metrics, stragglers, find_wait_causes(metrics)),
              HasSubstr("Rank 1 (node1) is 200.0 ms late in most steps, delayed in backward"));
  const auto findings = findings_of(metrics, stragglers, find_wait_causes(metrics));
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].title, "Ranks wait for rank 1");
}

// Rank 1 is late at the first collective of each step, and rank 2 at the second collective of every other
// step. Ranks with their own finding are not counted among the ranks that are late in turn.
TEST(Findings, SayWhoTakesTurnsOnlyOfWhatIsLeft) {
  const auto trace_with = [](bool rank_0_too) {
    TraceBuilder trace(3);
    for (int step = 0; step < 22; ++step)
      for (int rank = 0; rank < 3; ++rank) {
        const std::int64_t t = step * 1000 * ms;
        const bool late = step % 2 == 0 ? rank == 2 : rank_0_too && rank == 0;
        const auto first = t + (rank == 1 ? 700 : 500) * ms;
        const auto second = t + (late ? 890 : 800) * ms;
        trace.step(rank, step, t, t + 1000 * ms);
        trace.span(rank, 0, "backward", t, first);
        trace.collective(rank, 1, 2 * step, first, t + 750 * ms);
        trace.span(rank, 0, "optimizer", t + 750 * ms, second);
        trace.collective(rank, 1, 2 * step + 1, second, t + 950 * ms);
      }
    return trace;
  };
  const auto titles = [](const TraceBuilder& trace) {
    const auto metrics = measure_trace(trace);
    std::string all;
    for (const auto& finding : findings_of(metrics, find_stragglers(metrics), find_wait_causes(metrics)))
      all += finding.title + ";";
    return all;
  };
  EXPECT_THAT(titles(trace_with(false)),
              ::testing::AllOf(HasSubstr("Ranks wait for rank 1;"), HasSubstr("Ranks wait for rank 2;"),
                               ::testing::Not(HasSubstr("Different ranks"))));
  EXPECT_THAT(titles(trace_with(true)),
              ::testing::AllOf(HasSubstr("Ranks wait for rank 1;"), HasSubstr("Different ranks are late")));
}

TEST(Stragglers, ClaimNothingBelowTheClocksResidual) {
  const auto metrics = measure_trace(straggling_trace(21, 150'000));
  EXPECT_DOUBLE_EQ(metrics.clock_floor_ms, 300);
  EXPECT_TRUE(find_stragglers(metrics).empty());
  EXPECT_THAT(verdict_of(metrics, {}, find_wait_causes(metrics)), HasSubstr("No rank stands out"));
}

TEST(Stragglers, DoNotCallAllLateBecauseOneIsEarly) {
  TraceBuilder trace(4);
  for (int step = 0; step < 10; ++step)
    for (int rank = 0; rank < 4; ++rank) {
      const std::int64_t t = step * 100 * ms;
      trace.step(rank, step, t, t + 100 * ms);
      trace.collective(rank, 1, step, t + (rank == 2 ? 20 : 60) * ms, t + 80 * ms);
    }
  const auto metrics = measure_trace(trace);
  EXPECT_DOUBLE_EQ(quantile(metrics.ranks[0].step_lateness_ms, 0.5), 40);
  EXPECT_TRUE(find_stragglers(metrics).empty());
}

TEST(Stragglers, TellOneOffFromChronic) {
  TraceBuilder trace(2);
  std::int64_t t = 0;
  for (int step = 0; step < 60; ++step) {
    const std::int64_t pause = step == 40 ? 1000 * ms : 0;
    for (int rank = 0; rank < 2; ++rank) {
      const auto data_end = t + 10 * ms + (rank == 0 ? pause : 0);
      trace.step(rank, step, t, t + 100 * ms + pause);
      trace.span(rank, 0, "data", t, data_end);
      trace.span(rank, 0, "forward", data_end, data_end + 50 * ms);
      trace.collective(rank, 0, step, data_end + 50 * ms, t + pause + 70 * ms);
    }
    t += 100 * ms + pause;
  }
  const auto metrics = measure_trace(trace);
  const auto stragglers = find_stragglers(metrics);
  ASSERT_THAT(stragglers, SizeIs(1));
  EXPECT_EQ(stragglers[0].rank_index, 0U);
  EXPECT_EQ(stragglers[0].pattern, LatePattern::one_off);
  EXPECT_EQ(stragglers[0].phase, "data");
  EXPECT_DOUBLE_EQ(stragglers[0].lateness_ms, 1000);
}

}  // namespace
}  // namespace farandole
