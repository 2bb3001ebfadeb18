#include "farandole/analyzer/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "analyzer/metrics_identities.h"
#include "analyzer/trace_builder.h"
#include "lane.h"

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/report/report.h"

namespace farandole {
namespace {

using namespace ::testing;
using testing::expect_identities;
using testing::measure_trace;
using testing::TraceBuilder;

constexpr std::int64_t ms = TraceBuilder::ms;

// Steps of 100 ms on two ranks: data 10, forward 20, backward 40 with a collective of 30 that begins 20
// before its end, wait 10, optimizer 15, and 5 without a span.
TraceBuilder even_trace(int steps) {
  TraceBuilder trace(2);
  for (int step = 0; step < steps; ++step) {
    const std::int64_t t = step * 100 * ms;
    for (int rank = 0; rank < 2; ++rank) {
      trace.step(rank, step, t, t + 95 * ms);
      trace.span(rank, 0, "data", t, t + 10 * ms);
      trace.span(rank, 0, "forward", t + 10 * ms, t + 30 * ms);
      trace.span(rank, 0, "backward", t + 30 * ms, t + 70 * ms);
      trace.span(rank, 0, "wait", t + 70 * ms, t + 80 * ms);
      trace.span(rank, 0, "optimizer", t + 80 * ms, t + 95 * ms);
      trace.collective(rank, 1, step, t + 50 * ms, t + 80 * ms, 3'000'000);
    }
  }
  return trace;
}

TEST(Metrics, OfAKnownTraceAreExact) {
  const auto metrics = measure_trace(even_trace(20), {{"ranks", 2}, {"global_batch", 64}, {"device", "cpu"}});
  EXPECT_EQ(metrics.window.warmup_steps, 2);
  EXPECT_THAT(metrics.window.steps, SizeIs(18));
  EXPECT_EQ(metrics.window.length(), 1795 * ms);
  ASSERT_THAT(metrics.ranks, SizeIs(2));
  for (const auto& rank : metrics.ranks) {
    EXPECT_EQ(rank.compute, 18 * 75 * ms);
    EXPECT_EQ(rank.communication, 18 * 30 * ms);
    EXPECT_EQ(rank.overlap, 18 * 20 * ms);
    EXPECT_EQ(rank.exposed, 18 * 10 * ms);
    EXPECT_EQ(rank.other, 18 * 10 * ms);  // data
    EXPECT_EQ(rank.idle, 17 * 5 * ms);
    EXPECT_EQ(rank.waiting, 0);
    EXPECT_EQ(rank.phases[static_cast<std::size_t>(Phase::wait)], 18 * 10 * ms);
    EXPECT_EQ(rank.phases[static_cast<std::size_t>(Phase::other)], 0);
  }
  expect_identities(metrics);
  EXPECT_DOUBLE_EQ(*metrics.overlap.value, 2.0 / 3);
  EXPECT_DOUBLE_EQ(*metrics.throughput.value, 64 * 18 / 1.795);
  EXPECT_DOUBLE_EQ(*metrics.parallel_efficiency.value, 1350.0 / 1795);
  EXPECT_DOUBLE_EQ(*metrics.load_balance.value, 1);
  EXPECT_DOUBLE_EQ(*metrics.communication_efficiency.value, 1350.0 / 1795);
  EXPECT_DOUBLE_EQ(*metrics.serialisation.value,
                   1350.0 / 1615);  // the waits of 10 ms a step are the network's
  EXPECT_DOUBLE_EQ(*metrics.transfer_efficiency.value, 1615.0 / 1795);
  EXPECT_EQ(metrics.no_gpu, "no GPU in this run");
  EXPECT_EQ(metrics.nodes, 2U);
  ASSERT_THAT(metrics.collectives, SizeIs(1));
  const auto& row = metrics.collectives[0];
  EXPECT_EQ(row.count, 18U);
  EXPECT_DOUBLE_EQ(row.bytes.value.value(), 3e6);
  EXPECT_DOUBLE_EQ(row.median_us, 30'000);
  EXPECT_DOUBLE_EQ(*row.algbw_gbps.value, 0.1);
  EXPECT_DOUBLE_EQ(*row.busbw_gbps.value, 0.1);  // 2(p-1)/p = 1 for two ranks
  EXPECT_TRUE(metrics.warnings.empty());
}

TEST(Metrics, CountACollectiveOfTheTrainingThreadAsExposed) {
  TraceBuilder trace(2);
  for (int step = 0; step < 3; ++step)
    for (int rank = 0; rank < 2; ++rank) {
      const std::int64_t t = step * 100 * ms;
      trace.step(rank, step, t, t + 100 * ms);
      trace.span(rank, 0, "backward", t, t + 100 * ms);
      trace.collective(rank, 0, step, t + 40 * ms, t + 70 * ms);
    }
  const auto metrics = measure_trace(trace);
  expect_identities(metrics);
  EXPECT_EQ(metrics.ranks[0].compute, 2 * 70 * ms);
  EXPECT_EQ(metrics.ranks[0].overlap, 0);
  EXPECT_EQ(metrics.ranks[0].exposed, 2 * 30 * ms);
  EXPECT_EQ(metrics.ranks[0].phases[static_cast<std::size_t>(Phase::wait)], 2 * 30 * ms);
}

TEST(Metrics, CountEvaluationAndCheckpointsBetweenSteps) {
  TraceBuilder trace(1);
  for (int step = 0; step < 3; ++step) {
    trace.step(0, step, step * 100 * ms, step * 100 * ms + 50 * ms);
    trace.span(0, 0, "evaluation", step * 100 * ms + 50 * ms, step * 100 * ms + 80 * ms);
    trace.span(0, 0, "checkpoint", step * 100 * ms + 80 * ms, step * 100 * ms + 90 * ms);
  }
  const auto metrics = measure_trace(trace);
  expect_identities(metrics);
  EXPECT_EQ(metrics.window.length(), 150 * ms);
  EXPECT_EQ(metrics.ranks[0].phases[static_cast<std::size_t>(Phase::evaluation)], 30 * ms);
  EXPECT_EQ(metrics.ranks[0].phases[static_cast<std::size_t>(Phase::checkpoint)], 10 * ms);
  EXPECT_EQ(metrics.ranks[0].phases[static_cast<std::size_t>(Phase::other)], 100 * ms);
  EXPECT_EQ(metrics.ranks[0].idle, 10 * ms);
  EXPECT_FALSE(metrics.overlap.value);
}

// Two steps of 100 ms, each with 40 ms of compute and a reduction of 30 ms, of which they share 10.
void add_steps_of_a_gpu(TraceBuilder& trace, const std::string& reduction) {
  for (int step = 0; step < 2; ++step) {
    const std::int64_t t = step * 100 * ms;
    trace.step(0, step, t, t + 100 * ms);
    trace.span(0, 2, "gpu_kernel", t + 10 * ms, t + 50 * ms, {}, "gemm");
    trace.span(0, 3, "gpu_kernel", t + 40 * ms, t + 70 * ms, {}, reduction);
  }
}

// Kernels of NCCL and of ranks that share a GPU are communication.
TEST(Metrics, SplitTheGpusTime) {
  for (const auto* kernel : {"ncclDevKernel_AllReduce_Sum_f32", "farandole_reduce_peers(bucket 3)",
                             "farandole_copy_from_peers(rows)"}) {
    TraceBuilder trace(1);
    add_steps_of_a_gpu(trace, kernel);
    for (const auto t : {std::int64_t{0}, 100 * ms})
      trace.span(0, 2, "gpu_memcpy", t + 60 * ms, t + 80 * ms, {}, "HtoD");
    const auto metrics = measure_trace(trace, {{"device", "cuda"}});
    expect_identities(metrics);
    ASSERT_TRUE(metrics.ranks[0].gpu);
    EXPECT_EQ(metrics.ranks[0].gpu->kernels, 60 * ms) << kernel;
    EXPECT_EQ(metrics.ranks[0].gpu->compute, 40 * ms);
    EXPECT_EQ(metrics.ranks[0].gpu->communication_only, 20 * ms);
    EXPECT_EQ(metrics.ranks[0].gpu->memcpy_only, 10 * ms);
    EXPECT_EQ(metrics.ranks[0].gpu->idle, 30 * ms);
    EXPECT_EQ(metrics.ranks[0].overlap, 10 * ms);
  }
}

TEST(Metrics, PutGpuWorkDownToThePhaseThatLaunchedIt) {
  TraceBuilder trace(1);
  for (int step = 0; step < 2; ++step) {
    const std::int64_t t = step * 100 * ms;
    trace.step(0, step, t, t + 100 * ms);
    trace.span(0, 2, "gpu_kernel", t + 10 * ms, t + 30 * ms, {{"phase", "forward"}}, "gemm");
    trace.span(0, 2, "gpu_kernel", t + 30 * ms, t + 60 * ms, {{"step", step}, {"phase", "backward"}}, "gemm");
    trace.span(0, 3, "gpu_kernel", t + 50 * ms, t + 70 * ms, {{"phase", "backward"}},
               "ncclDevKernel_AllReduce");
    trace.span(0, 2, "gpu_memcpy", t + 65 * ms, t + 80 * ms, {{"phase", "nonsense"}}, "HtoD");
  }
  const auto metrics = measure_trace(trace, {{"device", "cuda"}});
  expect_identities(metrics);
  ASSERT_TRUE(metrics.ranks[0].gpu);
  const auto& gpu = *metrics.ranks[0].gpu;
  EXPECT_EQ(gpu.by_phase[static_cast<std::size_t>(Phase::forward)], 20 * ms);
  EXPECT_EQ(gpu.by_phase[static_cast<std::size_t>(Phase::backward)], 40 * ms);
  EXPECT_EQ(gpu.by_phase[static_cast<std::size_t>(Phase::optimizer)], 0);
}

// Kernels run 60 ms behind the host and fill the time from the first to the last one.
TraceBuilder partly_recorded(int steps, int first, int last, bool in_time = false, int idle = -1) {
  TraceBuilder trace(1);
  for (int step = 0; step < steps; ++step) {
    const std::int64_t t = step * 100 * ms, begin = t + (in_time ? 4 : 60) * ms;
    trace.step(0, step, t, t + 100 * ms);
    trace.span(0, 0, "forward", t, t + 100 * ms);
    if (step >= first && step <= last && step != idle)
      for (int kernel = 0; kernel < 4; ++kernel)
        trace.span(0, 2, "gpu_kernel", begin + kernel * 25 * ms, begin + (kernel * 25 + 24) * ms, {}, "gemm");
  }
  return trace;
}

TEST(Metrics, AreThoseOfTheStepsWithRecordedGpuWork) {
  struct PartCase {
    int first, last;
    std::int64_t kept_first, kept_last;
    bool in_time = false;
  };
  for (const auto& [first, last, kept_first, kept_last, in_time] :
       std::vector<PartCase>{{10, 20, 11, 20},
                             {10, 20, 10, 20, true},
                             {7, 7, 8, 8},
                             {7, 7, 7, 7, true},
                             {0, 2, 1, 2},
                             {3, 39, 4, 39}}) {
    const auto metrics = measure_trace(partly_recorded(40, first, last, in_time), {{"device", "cuda"}});
    expect_identities(metrics);
    EXPECT_TRUE(metrics.window.of_part);
    EXPECT_EQ(metrics.window.step_numbers.front(),
              std::max<std::int64_t>(kept_first, kept_first < 4 && last > 3 ? 4 : 0));
    EXPECT_EQ(metrics.window.step_numbers.back(), kept_last);
    EXPECT_GT(gpu_shares(metrics)->utilization, in_time ? 0.9 : 0.5) << first;
    EXPECT_THAT(metrics.warnings,
                Contains(HasSubstr("recorded in a part of the run; all figures are those of step")));
  }
  const auto metrics = measure_trace(partly_recorded(40, 0, 39), {{"device", "cuda"}});
  EXPECT_FALSE(metrics.window.of_part);
  EXPECT_EQ(metrics.window.warmup_steps, 4);
  // A step in the middle in which the GPU does nothing is recorded.
  EXPECT_FALSE(measure_trace(partly_recorded(40, 0, 39, true, 20), {{"device", "cuda"}}).window.of_part);
  EXPECT_DOUBLE_EQ(gpu_shares(measure_trace(partly_recorded(40, 10, 20)))->utilization, 0.96);
}

// As a recorder records it that takes a sample of the steps.
TEST(Metrics, AreThoseOfTheLongestSequenceOfStepsWithRecordedGpuWork) {
  for (const auto& [parts, first, last] :
       std::vector<std::tuple<std::vector<std::pair<int, int>>, std::int64_t, std::int64_t>>{
           {{{10, 19}, {50, 59}, {90, 99}}, 90, 99},  // of equal ones the last
           {{{10, 24}, {50, 59}}, 10, 24},
           {{{0, 9}, {50, 55}}, 5, 9}}) {  // after the warm-up
    TraceBuilder trace(1);
    for (int step = 0; step < 100; ++step) {
      const std::int64_t t = step * 100 * ms;
      trace.step(0, step, t, t + 100 * ms);
      trace.span(0, 0, "forward", t, t + 100 * ms);
      for (const auto& [begin, end] : parts)
        if (step >= begin && step <= end) trace.span(0, 2, "gpu_kernel", t + 2 * ms, t + 98 * ms, {}, "gemm");
    }
    const auto metrics = measure_trace(trace, {{"device", "cuda"}});
    expect_identities(metrics);
    EXPECT_EQ(metrics.window.step_numbers.front(), first);
    EXPECT_EQ(metrics.window.step_numbers.back(), last);
    EXPECT_NEAR(gpu_shares(metrics)->utilization, 0.96, 0.01);
  }
}

// Four-byte buckets that a thread beside the training thread reduces one after the other: compute hides them
// up to the last one. A slow network is on the path from the time at which compute no longer hides it.
TEST(Metrics, HaveNoTransferOnThePathThatComputeHides) {
  for (const bool slow : {false, true}) {
    TraceBuilder trace(2);
    for (int step = 0; step < 20; ++step)
      for (int rank = 0; rank < 2; ++rank) {
        const auto t = step * 100 * ms, end = slow ? t + 100 * ms : t + 81 * ms;
        trace.step(rank, step, t, t + 100 * ms);
        trace.span(rank, 0, "forward", t, t + 30 * ms);
        trace.span(rank, 0, "backward", t + 30 * ms, t + 80 * ms);
        trace.span(rank, 0, "wait", t + 80 * ms, end);
        if (!slow) trace.span(rank, 0, "optimizer", end, t + 100 * ms);
        const auto buckets = slow ? 7 : 50;
        for (int bucket = 0; bucket < buckets; ++bucket) {
          const auto from = slow ? t + (30 + 10 * bucket) * ms : t + (31 + bucket) * ms;
          trace.collective(rank, 1, step * buckets + bucket, from, from + (slow ? 10 : 1) * ms, 4);
        }
      }
    const TemporaryFolder folder;
    trace.write_run(folder / "run", {});
    const auto metrics = measure(read_run(folder / "run"));
    EXPECT_DOUBLE_EQ(*metrics.transfer_efficiency.value, slow ? 0.8 : 0.99);
    EXPECT_EQ(metrics.critical_path.transfer, 18 * (slow ? 20 : 1) * ms);
  }
}

TEST(Metrics, MatchCollectivesAgainAfterARestart) {
  auto trace = even_trace(4);
  for (int step = 2; step < 6; ++step) {  // resumes from step 2; sequence numbers begin anew
    const std::int64_t t = (step + 10) * 100 * ms;
    for (int rank = 0; rank < 2; ++rank) {
      trace.step(rank, step, t, t + 95 * ms);
      trace.collective(rank, 1, step - 2, t + rank * ms, t + 10 * ms);
    }
  }
  const auto metrics = measure_trace(trace);
  EXPECT_THAT(metrics.window.steps, SizeIs(5));
  EXPECT_EQ(metrics.matches.unmatched, 0U);
  for (const auto& match : metrics.matches.matches) EXPECT_LE(match.last_arrival - match.first_arrival, ms);
  expect_identities(metrics);
}

// The training thread's part of a collective that is on a separate track is neither compute nor a collective.
TEST(Metrics, OfCollectivesThatTheTrainingThreadDrives) {
  auto trace = even_trace(20);
  for (int step = 0; step < 20; ++step)
    for (int rank = 0; rank < 2; ++rank)
      trace.span(rank, 0, "communication", (step * 100 + 55) * ms, (step * 100 + 60) * ms, {}, "bucket 0");
  const auto metrics = measure_trace(trace);
  EXPECT_EQ(metrics.matches.unmatched, 0U);
  ASSERT_THAT(metrics.collectives, SizeIs(1));
  EXPECT_EQ(metrics.collectives[0].count, 18U);
  for (const auto& rank : metrics.ranks) {
    EXPECT_EQ(rank.communication, 18 * 30 * ms);
    EXPECT_EQ(rank.compute, 18 * 70 * ms);
    EXPECT_EQ(rank.overlap, 18 * 15 * ms);
  }
  expect_identities(metrics);
}

TEST(Metrics, SayWhatIsMissing) {
  const TemporaryFolder folder;
  testing::write_gzip(folder / "t", even_trace(3).text());
  auto metrics = measure(read_run(folder / "t"));
  EXPECT_THAT(metrics.throughput.unknown, HasSubstr("no run.json"));
  EXPECT_THAT(metrics.no_gpu, HasSubstr("no run.json with the device"));
  metrics =
      measure_trace(even_trace(3), {{"ranks", 4}, {"global_batch", "many"}, {"hosts", {"node0", "other"}}});
  EXPECT_THAT(metrics.throughput.unknown, HasSubstr("no global_batch"));
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("no events of ranks 2, 3 (of 4)")));
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("\"global_batch\" is not a number above 0")));
  EXPECT_THAT(
      metrics.warnings,
      Contains(HasSubstr("rank 1 ran on node1 according to the trace and on other according to run.json")));
  EXPECT_THAT(measure_trace(even_trace(3), {{"ranks", 1}}).warnings,
              Contains(HasSubstr("may belong to another run")));
}

TEST(Metrics, NameDuplicateRanksAndRanksWithoutSteps) {
  auto trace = even_trace(3);
  trace.add({{"ph", "M"}, {"name", "process_name"}, {"pid", 9}, {"args", {{"rank", 1}}}});
  trace.add({{"ph", "X"}, {"cat", "forward"}, {"name", "f"}, {"pid", 9}, {"tid", 1}, {"ts", 1}, {"dur", 2}});
  trace.add({{"ph", "M"}, {"name", "process_name"}, {"pid", 10}, {"args", {{"rank", 2}}}});
  trace.add({{"ph", "X"}, {"cat", "forward"}, {"name", "f"}, {"pid", 10}, {"tid", 1}, {"ts", 1}, {"dur", 2}});
  const auto metrics = measure_trace(trace);
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("rank 1 occurs twice (processes 2 and 9)")));
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("rank 2 has no steps")));
  EXPECT_THAT(metrics.ranks, SizeIs(3));
  expect_identities(metrics);
}

TEST(Metrics, HoldOnTracesWithoutSteps) {
  TraceBuilder trace(1);
  trace.span(0, 0, "forward", 5 * ms, 15 * ms);
  const auto metrics = measure_trace(trace, {{"global_batch", 8}});
  expect_identities(metrics);
  EXPECT_EQ(metrics.window.length(), 10 * ms);
  EXPECT_FALSE(metrics.throughput.value);
}

TEST(Metrics, UseOneStepIfThereIsButOne) {
  const auto metrics = measure_trace(even_trace(1));
  EXPECT_EQ(metrics.window.warmup_steps, 0);
  EXPECT_EQ(metrics.window.length(), 95 * ms);
  EXPECT_EQ(warmup_of(2), 1);
  EXPECT_EQ(warmup_of(30), 3);
  EXPECT_EQ(warmup_of(100'000), 5);
}

TEST(Metrics, KeepTheirIdentitiesOnRandomSpans) {
  const std::vector<std::string> categories = {"data",       "forward",    "backward",   "optimizer",
                                               "wait",       "checkpoint", "evaluation", "other",
                                               "gpu_kernel", "gpu_memcpy", "nonsense"};
  std::mt19937 random(seed(7));
  for (int round = 0; round < rounds(60, 1'000) && !::testing::Test::HasFailure(); ++round) {
    const int ranks = 1 + static_cast<int>(random() % 3);
    TraceBuilder trace(ranks);
    const bool gpu = random() % 3 == 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int step = 0; step < static_cast<int>(random() % 8); ++step)
        trace.step(rank, step, step * 1'000'000 + random() % 100'000,
                   step * 1'000'000 + 500'000 + random() % 600'000);
      for (auto count = random() % 60; count > 0; --count) {
        const std::int64_t start = random() % 9'000'000;
        const auto& category = categories[random() % (gpu ? 11 : 8)];
        const bool on_gpu = category.starts_with("gpu");
        trace.span(rank, on_gpu ? 2 : 0, category, start, start + random() % 700'000, {},
                   random() % 2 == 0 ? "nccl" : "k");
      }
      for (auto count = random() % 20; count > 0; --count) {
        const std::int64_t start = random() % 9'000'000;
        trace.collective(rank, static_cast<int>(random() % 2), random() % 30, start,
                         start + random() % 400'000, random() % 3 * 1000, "bucket",
                         static_cast<int>(random() % 2));
      }
      trace.span(rank, 0, "forward", 0, 1);
    }
    const auto metrics = measure_trace(trace);
    expect_identities(metrics);
    for (const auto& parts : metrics.matches.parts)
      for (const auto& part : parts) {
        const auto wait = wait_of(metrics.matches.matches[part.match], part);
        EXPECT_LE(wait.start, wait.end);
        EXPECT_LE(wait.end, part.end);
      }
  }
}

TEST(CollectiveTable, UsesNcclTestsFactors) {
  EXPECT_DOUBLE_EQ(bus_factor("allreduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("reduce_scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("broadcast", 4), 1);
}

}  // namespace
}  // namespace farandole
