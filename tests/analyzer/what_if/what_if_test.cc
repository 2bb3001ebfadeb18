#include "farandole/analyzer/what_if/what_if.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"
#include "lane.h"

#include "farandole/analyzer/report/report.h"
#include "farandole/analyzer/what_if/validation.h"
#include "farandole/base/bucket_plan.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;
using testing::TraceBuilder;

constexpr double us = 1e3, ms = 1e6;

// The steps of this run follow from a recurrence: ranks compute, threads beside them reduce each bucket as
// soon as the last rank has it, and each bucket is updated when it is reduced. Units: nanoseconds.
struct MadeUpRun {
  int ranks = 2, steps = 24;
  double forward = 4 * ms;
  std::vector<std::uint64_t> gradients = {1 << 20, 3 << 19, 1 << 19, 1 << 20, 1 << 18, 1 << 20};
  std::vector<double> at = {2 * ms, 5 * ms, 7 * ms, 10 * ms, 12 * ms, 14 * ms};  // in backward
  double bucket_mb = 1.5;
  double alpha = 100 * us, beta = 1.5;  // of a transfer; per byte: 1.5 ns
  double update_alpha = 30 * us, update_beta = 0.2;
  int slow_rank = -1;
  double slower = 0, delay = 0;  // of its forward; of rank 1's step
  double checkpoint = 0;         // behind every fourth step
  bool notes_gradients = true;
  bool half = false;  // gradients travel as float16
  double wake = 0;    // from a bucket's end to where a rank that was not its last knows it
  int cores = 64;
  bool on_one_node = false;
  int more_ranks = 0;  // of which the trace has nothing

  std::vector<Bucket> buckets() const {
    return plan_recorded_buckets(gradients, {static_cast<std::size_t>(bucket_mb * 1024 * 1024)}).buckets;
  }
  std::uint64_t travel(const Bucket& bucket) const { return half ? bucket.bytes() / 2 : bucket.bytes(); }
  std::string name_of(std::size_t gradient) const { return "gradient g" + std::to_string(gradient); }

  // Returns the step from the recurrence and writes its trace if `trace` is set.
  double step_ms(TraceBuilder* trace = nullptr) const {
    const auto plan = buckets();
    std::vector<double> now(static_cast<std::size_t>(ranks), 1 * ms);
    std::vector<double> begins;
    std::int64_t sequence = 0;
    for (int step = 0; step < steps; ++step) {
      begins.push_back(*std::min_element(now.begin(), now.end()));
      std::vector<double> backward(now.size());
      std::vector<std::vector<double>> ready(now.size());
      for (std::size_t r = 0; r < now.size(); ++r) {
        const double held_up = r == 1 ? delay : 0;
        const double forward_end =
            now[r] + held_up + forward + (static_cast<int>(r) == slow_rank ? slower : 0);
        backward[r] = forward_end;
        for (const auto& bucket : plan) ready[r].push_back(forward_end + at[bucket.slots.back().tensor]);
        if (trace == nullptr) continue;
        if (held_up > 0) span(*trace, r, 0, "data", now[r], now[r] + held_up);
        span(*trace, r, 0, "forward", now[r] + held_up, forward_end);
        span(*trace, r, 0, "backward", forward_end, forward_end + at.back());
        for (std::size_t g = 0; notes_gradients && g < gradients.size(); ++g)
          trace->add({{"ph", "i"},
                      {"s", "t"},
                      {"cat", "other"},
                      {"name", name_of(g)},
                      {"pid", r + 1},
                      {"tid", TraceBuilder::tid(static_cast<int>(r), 0)},
                      {"ts", (forward_end + at[g]) / 1000},
                      {"args", {{"bytes", gradients[g]}}}});
      }
      std::vector<double> ends;
      std::vector<std::vector<double>> noticed(now.size());  // by rank and bucket
      for (std::size_t b = 0; b < plan.size(); ++b) {
        double last = 0;
        std::vector<double> arrivals;
        for (std::size_t r = 0; r < now.size(); ++r)
          arrivals.push_back(std::max(ready[r][b], ends.empty() ? 0 : ends.back()));
        last = *std::max_element(arrivals.begin(), arrivals.end());
        ends.push_back(last + alpha + beta * static_cast<double>(travel(plan[b])));
        for (std::size_t r = 0; r < now.size(); ++r) {
          noticed[r].push_back(ends.back() + (arrivals[r] < last ? wake : 0));
          if (trace != nullptr)
            trace->collective(static_cast<int>(r), 1, sequence, static_cast<std::int64_t>(arrivals[r]),
                              static_cast<std::int64_t>(noticed[r].back()), travel(plan[b]),
                              "bucket " + std::to_string(b));
        }
        ++sequence;
      }
      for (std::size_t r = 0; r < now.size(); ++r) {
        double time = backward[r] + at.back();
        for (std::size_t b = 0; b < plan.size(); ++b) {
          if (trace != nullptr && noticed[r][b] > time) span(*trace, r, 0, "wait", time, noticed[r][b]);
          time = std::max(time, noticed[r][b]);
          const double update = update_alpha + update_beta * static_cast<double>(plan[b].bytes());
          if (trace != nullptr) span(*trace, r, 0, "optimizer", time, time + update);
          time += update + 100;  // so that updates are told apart
        }
        if (trace != nullptr)
          trace->step(static_cast<int>(r), step, static_cast<std::int64_t>(now[r]),
                      static_cast<std::int64_t>(time));
        if (step % 4 == 3 && checkpoint > 0) {
          if (trace != nullptr) span(*trace, r, 0, "checkpoint", time, time + checkpoint);
          time += checkpoint;
        }
        now[r] = time;
      }
    }
    std::vector<double> periods;
    for (std::size_t i = static_cast<std::size_t>(warmup_of(steps)); i + 1 < begins.size(); ++i)
      periods.push_back((begins[i + 1] - begins[i]) / ms);
    return quantile(periods, 0.5);
  }

  static void span(TraceBuilder& trace, std::size_t rank, int thread, const std::string& category,
                   double start, double end) {
    trace.span(static_cast<int>(rank), thread, category, static_cast<std::int64_t>(start),
               static_cast<std::int64_t>(end));
  }

  void write(const std::filesystem::path& folder) const {
    TraceBuilder trace(ranks, on_one_node);
    step_ms(&trace);
    trace.write_run(folder, {{"ranks", ranks + more_ranks},
                             {"global_batch", 32 * (ranks + more_ranks)},
                             {"device", "cpu"},
                             {"bucket_mb", bucket_mb},
                             {"threads", 1},
                             {"cores", cores},
                             {"config", {{"compression", half ? "float16" : "none"}}}});
  }
};

class WhatIf : public ::testing::Test {
 protected:
  Replay replay(const MadeUpRun& run) {
    run.write(folder_ / "run");
    return *analyze_run(folder_ / "run", {}, true).replay;
  }
  static double step_ms(const Replay& replay, const std::string& scenario) {
    const auto prediction = predict(replay, parse_scenario(scenario));
    EXPECT_EQ(prediction.unknown, "");
    EXPECT_LE(prediction.band.low, prediction.step_ms);
    EXPECT_GE(prediction.band.high, prediction.step_ms);
    return prediction.step_ms;
  }
  static void expect_near(double predicted, double truth, double relative = 0.005) {
    EXPECT_NEAR(predicted, truth, relative * truth);
  }

  TemporaryFolder folder_;
};

TEST_F(WhatIf, FindsTheRunsOwnCostsAndItsLength) {
  const MadeUpRun run;
  const auto known = replay(run);
  ASSERT_TRUE(known.known()) << known.graph.unknown;
  EXPECT_FALSE(known.graph.caller_driven);
  EXPECT_EQ(known.graph.gradients, run.gradients);
  EXPECT_NEAR(known.graph.part.line.alpha_ns, run.alpha, 2 * us);
  EXPECT_NEAR(known.graph.part.line.beta_ns, run.beta, 0.01);
  EXPECT_NEAR(known.graph.update.line.beta_ns, run.update_beta, 0.01);
  EXPECT_TRUE(known.graph.updates_between);
  EXPECT_NEAR(known.error, 0, 0.002);
  EXPECT_NEAR(known.measured_ms, run.step_ms(), 1e-3);
  EXPECT_NEAR(step_ms(known, "bucket-mb=1.5"), known.measured_ms, 1e-6);
  EXPECT_NEAR(step_ms(known, "bandwidth=1x,ranks=2"), known.measured_ms, 1e-6);
}

TEST_F(WhatIf, FindsHowLateWaitingRanksContinue) {
  MadeUpRun run;
  run.slow_rank = 1;
  run.slower = 2 * ms;
  run.beta = 0.1;  // so that no bucket waits for the one before it
  run.wake = 300 * us;
  const auto known = replay(run);
  ASSERT_TRUE(known.known()) << known.graph.unknown;
  EXPECT_NEAR(known.graph.wake_ns, run.wake, 5 * us);
  EXPECT_NEAR(known.error, 0, 0.005);
}

TEST_F(WhatIf, PredictsOtherBucketsBandwidthsAndDelays) {
  const MadeUpRun base;
  const auto known = replay(base);
  for (const double size : {0.25, 0.5, 1.0, 2.0, 3.0, 25.0}) {
    auto other = base;
    other.bucket_mb = size;
    expect_near(step_ms(known, "bucket-mb=" + std::to_string(size)), other.step_ms());
    other.delay = 7 * ms;
    expect_near(step_ms(known, "delay=1@7,bucket-mb=" + std::to_string(size)), other.step_ms());
  }
  for (const double factor : {0.25, 0.5, 2.0, 8.0}) {
    auto other = base;
    other.beta /= factor;
    expect_near(step_ms(known, "bandwidth=" + std::to_string(factor) + "x"), other.step_ms());
  }
}

TEST_F(WhatIf, KnowsWhatTravelsAsHalfOfIt) {
  MadeUpRun base;
  base.half = true;
  const auto known = replay(base);
  EXPECT_NEAR(known.error, 0, 0.002);
  auto other = base;
  other.bucket_mb = 0.5;
  expect_near(step_ms(known, "bucket-mb=0.5"), other.step_ms());
}

TEST_F(WhatIf, TakesStragglersAndCheckpointsAway) {
  MadeUpRun slow;
  slow.slow_rank = 1;
  slow.slower = 9 * ms;
  auto even = slow;
  even.slower = 0;
  const auto known = replay(slow);
  ASSERT_EQ(known.late_ranks, std::vector<std::size_t>{1});
  expect_near(step_ms(known, "no-straggler"), even.step_ms());

  MadeUpRun saving;
  saving.checkpoint = 40 * ms;
  const auto with = replay(saving);
  const auto prediction = predict(with, parse_scenario("no-checkpoint"));
  EXPECT_LT(prediction.mean_step_ms, with.measured_mean_ms - 8);
  expect_near(prediction.mean_step_ms, MadeUpRun().step_ms(), 0.02);
  EXPECT_NEAR(prediction.change, 0, 0.01);  // of the median, which has none
}

TEST_F(WhatIf, TellsWhatFindingsChangesWouldBring) {
  const auto finding_of = [&](const MadeUpRun& run, Remedy remedy) {
    run.write(folder_ / "run");
    const auto findings = analyze_run(folder_ / "run").findings;
    const auto found = std::find_if(findings.begin(), findings.end(),
                                    [&](const Finding& finding) { return finding.remedy == remedy; });
    EXPECT_NE(found, findings.end());
    return found != findings.end() ? *found : Finding{};
  };
  const auto gain = [](const MadeUpRun& from, const MadeUpRun& to) {
    return 100 * (1 - to.step_ms() / from.step_ms());
  };
  MadeUpRun one_bucket;
  one_bucket.beta = 4;
  one_bucket.bucket_mb = 8;
  const auto exposed = finding_of(one_bucket, Remedy::bucket_size);
  ASSERT_TRUE(exposed.replayed);
  auto best = one_bucket;
  best.bucket_mb = *parse_scenario(exposed.replayed->scenario).bucket_mb;
  for (const double size : {0.5, 1.0, 2.0, 4.0}) {
    auto other = one_bucket;
    other.bucket_mb = size;
    EXPECT_LE(best.step_ms(), other.step_ms() * 1.01) << size;
  }
  EXPECT_GT(gain(one_bucket, best), 10);
  EXPECT_NEAR(exposed.replayed->gain_percent, gain(one_bucket, best), 1.5);
  EXPECT_THAT(exposed.change, HasSubstr(" (they were 8; "));
  EXPECT_THAT(exposed.evidence, HasSubstr("in a replay with buckets of 0."));

  const auto settled = finding_of(best, Remedy::bucket_size);
  EXPECT_FALSE(settled.replayed);
  EXPECT_THAT(settled.evidence, HasSubstr("MiB, the run is hardly shorter"));
  EXPECT_THAT(settled.change, ::testing::StartsWith("send less"));

  MadeUpRun slow, even;
  slow.slow_rank = 1;
  slow.slower = 9 * ms;
  const auto late = finding_of(slow, Remedy::no_straggler);
  ASSERT_TRUE(late.replayed);
  EXPECT_NEAR(late.replayed->gain_percent, gain(slow, even), 1);

  // The replay has no late rank, so its gain is not the gain of one of two findings.
  auto two = std::vector<Finding>(2);
  two[0].remedy = two[1].remedy = Remedy::no_straggler;
  add_replayed_gains(replay(slow), two);
  EXPECT_FALSE(two[0].replayed || two[1].replayed);

  MadeUpRun beyond = one_bucket;
  beyond.bucket_mb = largest_condition;
  EXPECT_THAT(finding_of(beyond, Remedy::bucket_size).evidence, HasSubstr("; in a replay with"));

  MadeUpRun saving;
  saving.checkpoint = 40 * ms;
  const auto checkpoints = finding_of(saving, Remedy::no_checkpoint);
  ASSERT_TRUE(checkpoints.replayed);
  EXPECT_GT(checkpoints.replayed->gain_percent, 15);
}

TEST_F(WhatIf, PropertiesHoldWhateverTheRun) {
  std::mt19937 random(seed(3));
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() % 10'000) / 10'000;
  };
  for (int round = 0; round < rounds(10, 100); ++round) {
    MadeUpRun run;
    run.steps = 12;
    run.ranks = 2 + static_cast<int>(random() % 3);
    run.forward = between(1, 20) * ms;
    run.gradients.clear();
    run.at.clear();
    double time = 0;
    for (int i = static_cast<int>(2 + random() % 10); i > 0; --i) {
      run.gradients.push_back(64 * (1 + random() % 40'000));
      run.at.push_back(time += between(0.1, 4) * ms);
    }
    run.bucket_mb = between(0.1, 4);
    run.alpha = between(1, 300) * us;
    run.beta = between(0.05, 3);
    if (random() % 2) run.slow_rank = static_cast<int>(random() % static_cast<unsigned>(run.ranks));
    run.slower = between(0, 10) * ms;
    const auto known = replay(run);
    ASSERT_TRUE(known.known()) << known.graph.unknown;
    EXPECT_NEAR(known.error, 0, 0.01) << round;
    const double as_it_was = known.measured_ms;
    double before = 1e9;
    for (const auto* factor : {"0.5", "1", "2", "10", "1000"}) {
      const double now = step_ms(known, std::string("bandwidth=") + factor + "x");
      EXPECT_LE(now, before * 1.0001);
      before = now;
    }
    EXPECT_LE(step_ms(known, "no-straggler"), as_it_was * 1.0001);
    const double delayed = step_ms(known, "delay=1@5");
    EXPECT_GE(delayed, as_it_was * 0.9999);
    EXPECT_LE(delayed, as_it_was + 5 + 1e-3);
    EXPECT_GE(step_ms(known, "ranks=8"), as_it_was * 0.98);
    auto other = run;
    other.bucket_mb = between(0.1, 8);
    if (known.graph.part.sizes > 2)
      expect_near(step_ms(known, "bucket-mb=" + std::to_string(other.bucket_mb)), other.step_ms(), 0.03);
  }
}

TEST_F(WhatIf, SaysWhyNothingCanBeSaid) {
  const auto why = [&](const Replay& known, const std::string& scenario) {
    return predict(known, parse_scenario(scenario)).unknown;
  };
  const auto known = replay({});
  EXPECT_THAT(why(known, "delay=2@5"), HasSubstr("no rank 2"));
  EXPECT_EQ(why(known, "delay=2@5,ranks=3"), "");
  MadeUpRun narrow;
  narrow.cores = 4;
  narrow.on_one_node = true;
  EXPECT_THAT(why(replay(narrow), "ranks=5"), HasSubstr("the node has 4 cores"));
  EXPECT_EQ(why(replay(narrow), "ranks=4"), "");
  MadeUpRun old;
  old.notes_gradients = false;
  EXPECT_THAT(why(replay(old), "bucket-mb=4"), HasSubstr("gradients"));
  EXPECT_EQ(why(replay(old), "bandwidth=2x"), "");
  MadeUpRun sample;
  sample.more_ranks = 6;
  const auto of_sample = replay(sample);
  EXPECT_THAT(why(of_sample, "ranks=16"), HasSubstr("only 2 of the run's 8 ranks"));
  EXPECT_THAT(why(of_sample, "delay=1@5"), HasSubstr("only 2 of the run's 8 ranks"));
  const auto faster = predict(of_sample, parse_scenario("bandwidth=2x"));
  EXPECT_NEAR(faster.throughput.value.value_or(0), 32 * 8 * 1e3 / faster.mean_step_ms, 1e-6);
  MadeUpRun few;
  few.steps = 3;
  EXPECT_THAT(why(replay(few), "bandwidth=2x"), HasSubstr("fewer than 3 steps"));
}

TEST_F(WhatIf, BackTestsAgainstOtherRuns) {
  MadeUpRun base, buckets, delayed, half;
  half.half = true;
  buckets.bucket_mb = 3;
  delayed.delay = 6 * ms;
  base.write(folder_ / "base");
  buckets.write(folder_ / "buckets");
  delayed.write(folder_ / "delayed");
  half.write(folder_ / "half");
  const std::vector<Scenario> scenarios = {parse_scenario("bucket-mb=3"), parse_scenario("delay=2@5")};
  auto report = report_of({analyze_run(folder_ / "base", scenarios, true)});
  const auto& own = report.runs.front();
  report.validations.push_back(
      validate(own.path, *own.replay,
               {parse_held_out((folder_ / "base").string()), parse_held_out((folder_ / "buckets").string()),
                parse_held_out((folder_ / "delayed").string() + ":delay=1@6"),
                parse_held_out((folder_ / "half").string())}));
  const auto& validation = report.validations.front();
  ASSERT_EQ(validation.runs.size(), 4U);
  EXPECT_EQ(validation.runs[0].scenario.text, "");
  EXPECT_EQ(validation.runs[1].scenario.text, "bucket-mb=3");
  EXPECT_EQ(validation.runs[2].scenario.text, "delay=1@6");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(validation.runs[i].error, 0, 0.005) << i;
  EXPECT_THAT(validation.runs[3].unknown, HasSubstr("--compression float16"));
  ASSERT_TRUE(validation.p95_error);
  EXPECT_LE(*validation.median_error, *validation.p95_error);

  const auto json = testing::json_report(report);
  const auto& what_if = json["runs"][0]["what_if"];
  EXPECT_EQ(what_if["reduction"], "thread");
  EXPECT_NEAR(what_if["scenarios"][0]["step_ms"].get<double>(), validation.runs[1].predicted_ms, 1e-9);
  EXPECT_TRUE(what_if["scenarios"][1].contains("unknown"));
  EXPECT_NEAR(json["validation"][0]["runs"][2]["error_percent"].get<double>(), 0, 0.5);
  const auto text = report_text(report, false);
  EXPECT_THAT(text, HasSubstr("bucket-mb=3 → step "));
  EXPECT_THAT(text, HasSubstr("delay=2@5 → unknown: "));
  EXPECT_THAT(text, HasSubstr("errors: median 0."));
  EXPECT_FALSE(testing::json_of_run(analyze_run(folder_ / "base")).contains("what_if"));
}

}  // namespace
}  // namespace farandole
