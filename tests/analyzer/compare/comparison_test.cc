#include "farandole/analyzer/compare/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"
#include "lane.h"
#include "tools/large_run.h"

#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using namespace ::testing;
using testing::LargeRun;
using testing::TraceBuilder;

RunReport report_on(const LargeRun& run) {
  const TemporaryFolder folder;
  run.write(folder / "run", 5);
  return analyze_run(folder / "run");
}

const Difference& named(const Comparison& comparison, const std::string& name) {
  for (const auto& difference : comparison.differences)
    if (difference.name == name) return difference;
  throw Error("no difference " + name);
}

LargeRun noisy() {
  return {.steps = 100, .noise_ns = 8'000'000};
}

TEST(Comparison, FindsWhatBecameSlower) {
  auto slower = noisy();
  slower.step.backward += 10'000'000;
  for (auto& bucket : slower.step.buckets) bucket.offset += 10'000'000;
  const auto before = report_on(noisy());
  const auto now = report_on(slower);
  const auto comparison = compare({&now.metrics}, {&before.metrics});
  EXPECT_EQ(named(comparison, "throughput").trend, Trend::worse);
  EXPECT_EQ(named(comparison, "step_ms").trend, Trend::worse);
  EXPECT_EQ(named(comparison, "backward_ms").trend, Trend::worse);
  EXPECT_NEAR(*named(comparison, "backward_ms").now.value - *named(comparison, "backward_ms").before.value,
              10, 1e-6);
  EXPECT_EQ(named(comparison, "forward_ms").trend, Trend::same);
  EXPECT_EQ(named(comparison, "optimizer_ms").trend, Trend::same);
  EXPECT_THAT(comparison.verdict, HasSubstr("Worse: throughput is"));
  EXPECT_THAT(comparison.verdict,
              HasSubstr("the main cause is backward, which takes 50.00 instead of 40.00 ms per step"));
  EXPECT_THAT(compare({&before.metrics}, {&now.metrics}).verdict, HasSubstr("Better: throughput is"));
  EXPECT_THAT(failures(parse_conditions("throughput<-5%, backward_ms>+20%"), {&now.metrics}, &comparison),
              ElementsAre(HasSubstr("throughput<-5%: it changed by -"),
                          HasSubstr("backward_ms>+20%: it changed by +25.0 %")));
  EXPECT_THAT(failures(parse_conditions("throughput<-50%,backward_ms>60"), {&now.metrics}, &comparison),
              IsEmpty());
}

// Two runs of the same program differ only by noise.
TEST(Comparison, DoesNotTakeChanceForADifference) {
  std::size_t found = 0;
  std::size_t all = 0;
  const auto before = report_on(noisy());
  for (int seed = 1; seed <= rounds(8, 20); ++seed) {
    auto again = noisy();
    again.seed = seed;
    const auto now = report_on(again);
    const auto comparison = compare({&now.metrics}, {&before.metrics});
    for (const auto& difference : comparison.differences) found += difference.trend == Trend::same ? 0 : 1;
    all += comparison.differences.size();
  }
  EXPECT_LE(found, all / 5) << "of " << all;  // one run against all: they share its chance
}

// A run of 60 steps with a mean of `ms` and a deviation of 5 % between steps.
RunMetrics run_of(double ms, std::mt19937& random) {
  std::normal_distribution<double> scatter(ms, 0.05 * ms);
  RunMetrics metrics;
  metrics.ranks.resize(1);
  for (int step = 0; step < 60; ++step) {
    metrics.window.periods_ms.push_back(scatter(random));
    metrics.window.steps.push_back({});
    metrics.steps.push_back({metrics.window.periods_ms.back() * 0.8e6, 0, 0, 0});
  }
  metrics.ranks[0].step_phases.resize(60);
  metrics.throughput = Figure::because("no batch is known");
  metrics.overlap = Figure::because("no communication");
  return metrics;
}

Trend trend_of_steps(const std::vector<RunMetrics>& now, const std::vector<RunMetrics>& before) {
  Runs a, b;
  for (const auto& run : now) a.push_back(&run);
  for (const auto& run : before) b.push_back(&run);
  return named(compare(a, b), "step_ms").trend;
}

// For any number of runs there are 5 % false alarms, even if runs differ more from each other
// than their steps do.
TEST(Comparison, OfRepeatsHoldsWhatDiffersFromRunToRun) {
  std::mt19937 random(31);
  const auto runs = [&](std::size_t count, double factor) {
    std::normal_distribution<double> between(100 * factor, 3 * factor);
    std::vector<RunMetrics> sample;
    for (std::size_t i = 0; i < count; ++i) sample.push_back(run_of(between(random), random));
    return sample;
  };
  for (const auto& [now, before] : {std::pair(2, 2), std::pair(1, 4), std::pair(5, 3)}) {
    int false_alarms = 0;
    int found = 0;
    const int trials = rounds(200, 600);
    for (int i = 0; i < trials; ++i) {
      false_alarms += trend_of_steps(runs(now, 1), runs(before, 1)) == Trend::same ? 0 : 1;
      found += trend_of_steps(runs(now, 1.5), runs(before, 1)) == Trend::worse ? 1 : 0;
    }
    EXPECT_LE(false_alarms, 0.07 * trials) << now << " against " << before;
    EXPECT_GE(found, 0.9 * trials) << now << " against " << before;
  }
}

TEST(Comparison, OfSingleRunsSaysThatRepeatsAreMissing) {
  std::mt19937 random(32);
  int false_alarms = 0;
  for (int i = 0; i < 1000; ++i)
    false_alarms += trend_of_steps({run_of(100, random)}, {run_of(100, random)}) == Trend::same ? 0 : 1;
  EXPECT_LE(false_alarms, 70);
  const auto now = run_of(120, random);
  const auto before = run_of(100, random);
  const auto again = run_of(101, random);
  EXPECT_THAT(compare({&now}, {&before}).verdict,
              AllOf(HasSubstr("Worse: step time"), HasSubstr("The run-to-run variance is unknown")));
  const auto repeated = compare({&now}, {&before, &again});
  EXPECT_TRUE(repeated.between_runs);
  EXPECT_THAT(repeated.verdict, Not(HasSubstr("unknown")));
  EXPECT_DOUBLE_EQ(*named(repeated, "step_ms").before.value,
                   (*named(compare({&now}, {&before}), "step_ms").before.value +
                    *named(compare({&now}, {&again}), "step_ms").before.value) /
                       2);
}

TEST(Comparison, NamesAPhaseOnlyWhereItMakesUpHalf) {
  const auto before = report_on(noisy());
  auto both = noisy();
  both.step.forward += 5'000'000;
  both.step.backward += 5'000'000;
  both.step.optimizer += 5'000'000;
  for (auto& bucket : both.step.buckets) bucket.offset += 5'000'000;
  const auto now = report_on(both);
  EXPECT_THAT(compare({&now.metrics}, {&before.metrics}).verdict,
              HasSubstr("no single phase explains half of the change"));
}

// The other ranks wait for the additional work of one rank.
TEST(Comparison, NamesWhomTheRanksWaitFor) {
  TraceBuilder before(4), now(4);
  for (int step = 0; step < 40; ++step)
    for (int rank = 0; rank < 4; ++rank) {
      const auto add = [&](TraceBuilder& trace, std::int64_t late) {
        const auto t = step * (40 + late) * TraceBuilder::ms;
        const auto own = rank == 2 ? late : 0;
        trace.step(rank, step, t, t + (40 + late) * TraceBuilder::ms);
        trace.span(rank, 0, "backward", t, t + (30 + own) * TraceBuilder::ms);
        trace.span(rank, 0, "wait", t + (30 + own) * TraceBuilder::ms, t + (40 + late) * TraceBuilder::ms);
        trace.collective(rank, 1, step, t + (30 + own) * TraceBuilder::ms,
                         t + (40 + late) * TraceBuilder::ms);
      };
      add(before, 0);
      add(now, 30);
    }
  const TemporaryFolder folder;
  before.write_run(folder / "before", nlohmann::json::object());
  now.write_run(folder / "now", nlohmann::json::object());
  const auto a = analyze_run(folder / "now");
  const auto b = analyze_run(folder / "before");
  EXPECT_THAT(
      compare({&a.metrics}, {&b.metrics}).verdict,
      HasSubstr("the main cause is wait, which takes 32.50 instead of 10.00 ms per step (mainly for rank "
                "2's backward)"));
}

TEST(Conditions, CompareEveryFigureTheyMayName) {
  const auto before = report_on(noisy());
  auto slower = noisy();
  slower.step.backward += 30'000'000;
  const auto now = report_on(slower);
  const auto comparison = compare({&now.metrics}, {&before.metrics});
  const Runs runs = {&now.metrics};
  for (const auto& [name, figure] : figures_of(runs))
    EXPECT_NE(find_difference(comparison, name), nullptr) << name;
  // Neither side has checkpoints, so nothing has changed.
  EXPECT_THAT(failures(parse_conditions("checkpoint_ms>+20%,evaluation_ms<-1%"), runs, &comparison),
              IsEmpty());
  // For the 95th percentiles of two single runs there is no interval.
  EXPECT_THAT(failures(parse_conditions("step_p95_ms>+10%"), runs, &comparison),
              ElementsAre(HasSubstr("step_p95_ms>+10%: unknown: it changed by +")));
  EXPECT_THAT(failures(parse_conditions("step_p95_ms<-10%,load_balance<-50%,transfer<-90%,"
                                        "serialisation<-90%,communication<-90%,exposed_fraction<-90%"),
                       runs, &comparison),
              IsEmpty());
  const auto again = report_on(slower);
  const auto repeated = compare({&now.metrics, &again.metrics}, {&before.metrics, &before.metrics});
  EXPECT_THAT(failures(parse_conditions("step_p95_ms>+10%"), {&now.metrics, &again.metrics}, &repeated),
              ElementsAre(HasSubstr("step_p95_ms>+10%: it changed by +")));
}

TEST(Conditions, DoNotTakeAFewStepsForCertain) {
  LargeRun few{.steps = 5};
  auto slower = few;
  slower.step.backward *= 2;
  for (auto& bucket : slower.step.buckets) bucket.offset *= 2;
  const auto now = report_on(slower);
  const auto before = report_on(few);
  const auto comparison = compare({&now.metrics}, {&before.metrics});
  EXPECT_THAT(failures(parse_conditions("step_ms>+10%"), {&now.metrics}, &comparison),
              ElementsAre(HasSubstr("step_ms>+10%: unknown: it changed by +")));
  EXPECT_EQ(trend_text(named(comparison, "step_ms")), "unknown");
  EXPECT_THAT(failures(parse_conditions("step_ms>+500%"), {&now.metrics}, &comparison), IsEmpty());
}

TEST(Conditions, SayWhatIsWrongWithThem) {
  EXPECT_THAT(parse_conditions(""), IsEmpty());
  for (const auto* wrong : {"throughput", "speed<5", "overlap<", "overlap<half", "overlap<5x%", "<5"})
    EXPECT_THROW(parse_conditions(wrong), UserError) << wrong;
  const auto report = report_on(LargeRun());
  EXPECT_THROW(refuse_changes(parse_conditions("overlap<0.5,throughput<-5%")), UserError);
  EXPECT_NO_THROW(refuse_changes(parse_conditions("overlap<0.5")));
  LargeRun alone{.ranks = 1};
  alone.step.buckets.clear();
  const auto alone_metrics = report_on(alone).metrics;
  EXPECT_THAT(failures(parse_conditions("overlap<0.5"), {&alone_metrics}, nullptr),
              ElementsAre(HasSubstr("unknown: no communication")));
}

TEST(ReportJson, HasTheComparison) {
  const auto run = report_on(LargeRun());
  auto report = report_of({run});
  report.against = {"before"};
  report.comparison = compare({&run.metrics}, {&run.metrics});
  const auto comparison = testing::json_report(report)["comparison"];
  EXPECT_EQ(comparison["against"][0], "before");
  EXPECT_EQ(comparison["verdict"], report.comparison->verdict);
  const auto& differences = comparison["differences"];
  const auto step = std::find_if(differences.begin(), differences.end(),
                                 [](const auto& difference) { return difference["name"] == "step_ms"; });
  ASSERT_NE(step, differences.end());
  EXPECT_EQ((*step)["relative"], true);
  EXPECT_EQ((*step)["change"], 0);
}

}  // namespace
}  // namespace farandole
