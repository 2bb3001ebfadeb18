// Identities of every run's metrics, and the metrics of a built trace.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include "analyzer/trace_builder.h"

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/report/report.h"

namespace farandole::testing {

// Identities of the critical path and of the causes of waiting.
inline void expect_reasons_add_up(const RunMetrics& metrics) {
  const auto& path = metrics.critical_path;
  if (path.unknown.empty()) {
    auto length = path.transfer;
    EXPECT_GE(path.transfer, 0);
    for (const auto& rank : path.ranks) {
      length += rank.total();
      EXPECT_GE(rank.idle, 0);
    }
    EXPECT_EQ(length, metrics.window.length());
  }
  double waited = 0;
  for (const auto& parts : metrics.matches.parts)
    for (const auto& part : parts) {
      const auto wait = wait_of(metrics.matches.matches[part.match], part);
      waited += static_cast<double>(wait.end - wait.start) * 1e-9;
    }
  const auto causes = find_wait_causes(metrics);
  for (const auto& cause : causes) waited -= cause.seconds;
  EXPECT_NEAR(waited, 0, 1e-9);
  double lost = 0;
  for (const auto& loss : find_losses(metrics, causes)) lost += loss.fraction;
  if (metrics.parallel_efficiency.value) {
    EXPECT_NEAR(lost + *metrics.parallel_efficiency.value, 1, 1e-9);
  }
  if (metrics.serialisation.value) {
    EXPECT_LE(*metrics.serialisation.value, 1);
    EXPECT_LE(*metrics.transfer_efficiency.value, 1);
    EXPECT_NEAR(*metrics.serialisation.value * *metrics.transfer_efficiency.value,
                *metrics.communication_efficiency.value, 1e-9);
  }
  double overlap = 0;
  for (const auto& rank : metrics.ranks) overlap += static_cast<double>(rank.overlap);
  for (const auto& step : metrics.steps) overlap -= step.overlap;
  if (!metrics.steps.empty()) {
    EXPECT_NEAR(overlap, 0, 1e-3);
  }
}

inline RunMetrics measure_trace(const TraceBuilder& trace, const nlohmann::json& run_json = {}) {
  const TemporaryFolder folder;
  trace.write_run(folder / "run", run_json);
  auto metrics = measure(read_run(folder / "run"));
  expect_reasons_add_up(metrics);
  return metrics;
}

inline void expect_identities(const RunMetrics& metrics) {
  const auto window = metrics.window.length();
  for (const auto& rank : metrics.ranks) {
    EXPECT_EQ(rank.compute + rank.communication - rank.overlap + rank.other + rank.idle, window);
    EXPECT_EQ(rank.exposed, rank.communication - rank.overlap);
    EXPECT_EQ(rank.waiting + rank.transfer, rank.communication);
    std::int64_t shares = 0;
    for (const auto share : rank.shares) {
      EXPECT_GE(share, 0);
      shares += share;
    }
    EXPECT_EQ(shares, window);
    std::int64_t phases = 0;
    for (const auto phase : rank.phases) phases += phase;
    EXPECT_LE(phases, window);
    for (const auto value :
         {rank.compute, rank.communication, rank.overlap, rank.exposed, rank.other, rank.idle, rank.waiting})
      EXPECT_GE(value, 0);
    if (rank.gpu) {
      EXPECT_EQ(rank.gpu->compute + rank.gpu->communication_only + rank.gpu->memcpy_only + rank.gpu->idle,
                window);
    }
  }
  double kernels = 0;
  for (const auto& rank : metrics.ranks) kernels += rank.gpu ? static_cast<double>(rank.gpu->kernels) : 0;
  for (const auto& step : metrics.steps) kernels -= step.kernels;
  if (!metrics.steps.empty()) {
    EXPECT_NEAR(kernels, 0, 1e-3);
  }
  double periods = 0;
  for (const auto period : metrics.window.periods_ms) periods += period;
  if (!metrics.window.steps.empty()) {
    EXPECT_NEAR(periods, static_cast<double>(window) * 1e-6, 1e-6);
  }
}

}  // namespace farandole::testing
