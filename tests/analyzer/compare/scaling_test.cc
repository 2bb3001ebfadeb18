#include "farandole/analyzer/compare/scaling.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

SizedRun run_of(int ranks, double batch, std::vector<double> periods_ms) {
  return {"runs/n" + std::to_string(ranks), ranks, Figure::known(batch), std::move(periods_ms),
          Figure::known(40)};
}

TEST(Scaling, IsWeakForTheSameBatchPerRank) {
  const auto scaling =
      measure_scaling({run_of(4, 128, {125, 125}), run_of(1, 32, {100, 100}), run_of(2, 64, {100, 100})});
  EXPECT_EQ(scaling.unknown, "");
  EXPECT_EQ(scaling.mode, "weak");
  EXPECT_EQ(scaling.base_ranks, 1);
  ASSERT_THAT(scaling.points, SizeIs(3));
  EXPECT_DOUBLE_EQ(scaling.points[0].efficiency, 1);
  EXPECT_DOUBLE_EQ(scaling.points[1].efficiency, 1);
  EXPECT_DOUBLE_EQ(scaling.points[2].efficiency, 0.8);
  EXPECT_DOUBLE_EQ(scaling.points[2].ci95.low, 0.8);
}

TEST(Scaling, IsStrongForTheSameGlobalBatch) {
  const auto scaling = measure_scaling({run_of(2, 64, {100, 100}), run_of(4, 64, {80, 80})});
  EXPECT_EQ(scaling.mode, "strong");
  EXPECT_DOUBLE_EQ(scaling.points[1].efficiency, 2 * 100 / (4 * 80.0));
}

TEST(Scaling, JoinsRepeatsAndGivesAnIntervalAroundTheEfficiency) {
  std::vector<double> noisy;
  for (int i = 0; i < 200; ++i) noisy.push_back(100 + i % 7);
  const auto scaling = measure_scaling(
      {run_of(1, 32, noisy), run_of(2, 64, noisy), run_of(2, 64, std::vector<double>(200, 123))});
  ASSERT_THAT(scaling.points, SizeIs(2));
  const auto& point = scaling.points[1];
  EXPECT_NEAR(point.step_ms, 113, 0.1);
  EXPECT_LT(point.ci95.low, point.efficiency);
  EXPECT_GT(point.ci95.high, point.efficiency);
  // Runs differ more than the steps of one run, and two runs are a poor estimate of this variance.
  const double widening = std::sqrt(2) * student_quantile(1) / 1.96;
  EXPECT_NEAR(point.ci95.low, 103.0 / 113 * std::pow(113.0 / 123, widening), 0.02);
  EXPECT_NEAR(point.ci95.high, 103.0 / 113 * std::pow(113.0 / 103, widening), 0.05);
  EXPECT_EQ(point.runs, 2);
}

// The steps drift. If they were drawn one by one, the interval of their mean would be far too narrow.
TEST(Scaling, KnowsThatStepsInARowAreAlike) {
  std::uint64_t state = 7;
  const auto noise = [&] {
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<double>(state >> 40) / static_cast<double>(1 << 24) - 0.5;
  };
  int missed = 0;
  const int trials = rounds(40, 100);
  for (int trial = 0; trial < trials; ++trial) {
    const auto drifting = [&] {
      std::vector<double> ms;
      double previous = 0;
      for (int step = 0; step < 400; ++step) {
        previous = 0.8 * previous + noise();
        ms.push_back(100 + 10 * previous);
      }
      return ms;
    };
    const auto scaling = measure_scaling({run_of(1, 32, drifting()), run_of(2, 64, drifting())});
    const auto& interval = scaling.points[1].ci95;
    missed += interval.low > 1 || interval.high < 1 ? 1 : 0;
  }
  EXPECT_LE(missed, 0.16 * trials);  // one by one: about half
}

// Runs differ by 5 %. Percentiles of resampled runs miss the value in 29 % of the cases for two runs, and in
// 17 % for three.
TEST(Scaling, KnowsHowLittleFewRepeatsTell) {
  std::mt19937 random(3);
  std::normal_distribution<double> around(0, 0.05);
  for (const int repeats : {2, 3, 5}) {
    int missed = 0;
    const int trials = rounds(40, 100);
    for (int trial = 0; trial < trials; ++trial) {
      std::vector<SizedRun> runs;
      for (int i = 0; i < repeats; ++i)
        for (const int ranks : {1, 2})
          runs.push_back(run_of(ranks, 32.0 * ranks, std::vector<double>(8, 100 * std::exp(around(random)))));
      const auto interval = measure_scaling(runs).points[1].ci95;
      missed += interval.low > 1 || interval.high < 1 ? 1 : 0;
    }
    EXPECT_LE(missed, 0.1 * trials) << repeats;
  }
}

TEST(Scaling, WeighsRunsAlikeAndSaysWhereRepeatsAreMissing) {
  const auto scaling = measure_scaling({run_of(1, 32, std::vector<double>(10, 100)),
                                        run_of(2, 64, std::vector<double>(1000, 100)),
                                        run_of(2, 64, std::vector<double>(10, 120))});
  EXPECT_DOUBLE_EQ(scaling.points[1].step_ms, 110);
  EXPECT_FALSE(scaling.repeated);
  EXPECT_THAT(repeats_text(scaling), HasSubstr("repeat these runs"));
  const auto repeated = measure_scaling({run_of(1, 32, {100, 100}), run_of(1, 32, {100, 101}),
                                         run_of(2, 64, {100, 100}), run_of(2, 64, {100, 101})});
  EXPECT_EQ(repeats_text(repeated), "");
}

std::vector<SizedRun> runs_by(LawKind kind, const ScalingLaw& law, const std::vector<int>& sizes, bool weak) {
  std::vector<SizedRun> runs;
  for (const int ranks : sizes) {
    const double ideal_ms = weak ? 100 : 100.0 / ranks;
    runs.push_back(run_of(ranks, weak ? 32.0 * ranks : 64,
                          std::vector<double>(50, ideal_ms / efficiency_by(kind, law, ranks))));
  }
  return runs;
}

TEST(Scaling, FindsTheLawThatMadeTheRuns) {
  ScalingLaw law{.amdahl = 0.04};
  auto scaling = measure_scaling(runs_by(LawKind::amdahl, law, {1, 2, 4}, false));
  EXPECT_NEAR(scaling.law.amdahl, 0.04, 1e-9);
  EXPECT_NEAR(scaling.amdahl.low, 0.04, 1e-9);
  EXPECT_EQ(scaling.model, "Amdahl");
  ASSERT_THAT(scaling.forecast, SizeIs(3));
  EXPECT_EQ(scaling.forecast[2].ranks, 32);
  EXPECT_NEAR(scaling.forecast[2].efficiency, 1 / (1 + 0.04 * 31), 1e-9);
  law.gustafson = 0.1;
  scaling = measure_scaling(runs_by(LawKind::gustafson, law, {1, 2, 4}, true));
  EXPECT_NEAR(scaling.law.gustafson, 0.1, 1e-9);
  EXPECT_EQ(scaling.model, "Gustafson");
  law.contention = 0.03;
  law.coherency = 0.002;
  scaling = measure_scaling(runs_by(LawKind::usl, law, {1, 2, 4, 8}, true));
  EXPECT_NEAR(scaling.law.contention, 0.03, 1e-9);
  EXPECT_NEAR(scaling.law.coherency, 0.002, 1e-9);
  EXPECT_EQ(scaling.model, "universal scalability");
  EXPECT_NEAR(scaling.forecast[0].efficiency, efficiency_by(LawKind::usl, law, 16), 1e-9);
  // d(x·e)/dx falls to one half, with x·e = x / (1 + 0.03·(x − 1) + 0.002·x·(x − 1)).
  const auto gain = [&](double x) {
    return (x + 0.01) * efficiency_by(LawKind::usl, law, x + 0.01) - x * efficiency_by(LawKind::usl, law, x);
  };
  EXPECT_NEAR(gain(scaling.worth_until_ranks) / 0.01, 0.5, 0.02);
}

TEST(Scaling, ForecastsWithinItsBandWhatItHasNotSeen) {
  ScalingLaw law{.contention = 0.02, .coherency = 0.001};
  auto runs = runs_by(LawKind::usl, law, {1, 2, 4, 8}, true);
  std::uint64_t state = 1;
  for (auto& run : runs)
    for (auto& ms : run.periods_ms) {
      state = state * 6364136223846793005 + 1442695040888963407;
      ms *= 0.97 + 0.06 * static_cast<double>(state >> 40) / static_cast<double>(1 << 24);
    }
  const auto scaling = measure_scaling(runs);
  ASSERT_THAT(scaling.forecast, SizeIs(3));
  for (const auto& point : scaling.forecast) {
    EXPECT_LE(point.band.low, efficiency_by(LawKind::usl, law, point.ranks));
    EXPECT_GE(point.band.high, efficiency_by(LawKind::usl, law, point.ranks));
  }
}

TEST(Scaling, SaysWhereComputeItselfTakesLonger) {
  auto runs = std::vector{run_of(1, 32, {100, 100}), run_of(4, 128, {200, 200})};
  EXPECT_EQ(slower_compute_text(measure_scaling(runs)), "");
  runs[1].compute_ms = Figure::known(80);
  const auto scaling = measure_scaling(runs);
  EXPECT_DOUBLE_EQ(*scaling.points[1].compute_scaling.value, 0.5);
  EXPECT_THAT(slower_compute_text(scaling),
              HasSubstr("On 4 ranks, the compute of a sample takes 2.0 times as long as on 1"));
  runs[1].compute_ms = Figure::because("no kernels");
  EXPECT_EQ(measure_scaling(runs).points[1].compute_scaling.unknown, "no kernels");
}

TEST(Scaling, RefusesToForecastFromTwoSizes) {
  const auto scaling = measure_scaling({run_of(1, 32, {100, 100}), run_of(4, 128, {110, 110})});
  EXPECT_TRUE(scaling.forecast.empty());
  EXPECT_THAT(scaling.no_forecast, HasSubstr("add a run of 8 ranks with the same batch per rank"));
}

TEST(Scaling, LeavesRunsOutThatSayNothingOfIt) {
  const std::vector<SizedRun> sound = {run_of(1, 32, {100, 100}), run_of(2, 64, {110, 110}),
                                       run_of(4, 128, {125, 125})};
  const auto alone = measure_scaling(sound);
  for (std::size_t place = 0; place <= sound.size(); ++place) {
    auto runs = sound;
    const auto at = runs.begin() + static_cast<std::ptrdiff_t>(place);
    runs.insert(at, {run_of(8, 256, {}), {"x", 2, Figure::because("no run.json"), {1}, Figure::known(1)}});
    const auto scaling = measure_scaling(runs);
    EXPECT_EQ(scaling.unknown, "");
    ASSERT_THAT(scaling.points, SizeIs(3));
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_DOUBLE_EQ(scaling.points[i].efficiency, alone.points[i].efficiency);
    EXPECT_EQ(left_out_text(scaling),
              "Left out: runs/n8 has no steps in its window; the global batch of x is unknown: no run.json.");
  }
  EXPECT_EQ(left_out_text(alone), "");
}

TEST(Scaling, SaysWhyItIsUnknown) {
  EXPECT_THAT(measure_scaling({run_of(2, 64, {1})}).unknown, HasSubstr("at least two sizes"));
  EXPECT_THAT(measure_scaling({run_of(1, 32, {1}), run_of(2, 50, {1})}).unknown, HasSubstr("neither"));
  EXPECT_THAT(measure_scaling({run_of(1, 32, {1}), run_of(1, 50, {1})}).unknown,
              HasSubstr("have different global batches"));
  EXPECT_THAT(
      measure_scaling({run_of(1, 32, {1}), {"x", 2, Figure::because("no run.json"), {1}, Figure::known(1)}})
          .unknown,
      HasSubstr("x is unknown: no run.json"));
  EXPECT_THAT(measure_scaling({run_of(1, 32, {}), run_of(2, 64, {1})}).unknown, HasSubstr("no steps"));
}

}  // namespace
}  // namespace farandole
