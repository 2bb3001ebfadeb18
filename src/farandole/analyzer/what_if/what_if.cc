#include "farandole/analyzer/what_if/what_if.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <optional>
#include <utility>

namespace farandole {
namespace {

constexpr std::size_t most_operations = 4'000'000;  // Per replay.
constexpr std::size_t few_operations = 12'000;

struct Outcome {
  double median_ms = 0, mean_ms = 0;
  std::optional<Range> interval;
  std::vector<std::string> notes;
};

Outcome outcome_of(const Replay& replay, const Scenario& scenario, double cost_factor = 1,
                   std::size_t operations = most_operations) {
  auto [run, notes] = run_changed(replay, scenario, cost_factor, operations);
  return {quantile(run.period_ms, 0.5), run.length_ns * 1e-6 / static_cast<double>(run.period_ms.size()),
          median_interval(run.period_ms), std::move(notes)};
}

double corrected_mean_ms(const Replay& replay, const Outcome& outcome) {
  return std::max(0.0, outcome.mean_ms - replay.mean_error * replay.measured_mean_ms);
}

std::string why_not(const Replay& replay, const Scenario& scenario) {
  const auto& graph = replay.graph;
  const int ranks = static_cast<int>(graph.steps.size());
  if (scenario.bucket_mb && graph.gradients.empty())
    return "the run does not record when its gradients were ready (older versions did not), or has "
           "none";
  const bool at_nodes = replay.compression == "bfloat16:between-nodes";
  if (scenario.bucket_mb && replay.compression != "none" && !at_nodes && !is_half(replay.compression) &&
      !replay.compression.empty())
    return "with " + replay.compression + ", the transferred bytes do not follow from the bucket sizes";
  if (replay.is_sample() && (scenario.ranks || !scenario.delays.empty()))
    return fmt::format("only {} of the run's {} ranks can be replayed", ranks, replay.size);
  const auto& wanted = scenario.compression;
  if (wanted == "bfloat16:between-nodes" && !at_nodes)
    return "the run does not record how long its transfers between nodes took";
  if (!wanted.empty() && wanted != replay.compression && !replay.compression.empty() &&
      replay.compression != "none" && !is_half(replay.compression))
    return "the cost without " + replay.compression + " is not in this run";
  const bool costs = scenario.bucket_mb || scenario.bandwidth || !wanted.empty() || scenario.ranks;
  if (costs && graph.buckets.empty() && !(scenario.ranks == ranks))
    return "the run reduces no buckets, so the cost of their transfers is unknown";
  if (costs && !graph.part.known()) return graph.part.unknown;
  if (ranks == 1 && scenario.ranks.value_or(1) > 1)
    return "a run of one rank does not contain the cost of transfers between ranks";
  for (const auto& delay : scenario.delays)
    if (delay.rank >= scenario.ranks.value_or(ranks))
      return fmt::format("the run has no rank {} to delay", delay.rank);
  return "";
}

void say_limits(const Replay& replay, const Scenario& scenario, Prediction& prediction) {
  if (replay.is_sample())
    prediction.notes.push_back(
        fmt::format("replayed with {} of {} ranks", replay.graph.steps.size(), replay.size));
  if (scenario.no_straggler && replay.late_ranks.empty())
    prediction.notes.emplace_back("no rank is late by itself, so nothing changes");
  if (scenario.no_checkpoint)
    prediction.notes.emplace_back("the effect of background writing on the steps is not included");
  if ((scenario.bucket_mb || scenario.bandwidth) && replay.graph.part.sizes == 1)
    prediction.notes.emplace_back("all buckets had one size, so only their bandwidth is known");
}

}  // namespace

Replay replay_of(const RunModel& run, const RunMetrics& metrics, const std::vector<Straggler>& stragglers,
                 ReplayedSteps steps) {
  Replay replay;
  replay.graph = graph_of(run, metrics, steps);
  replay.size = metrics.size();
  replay.bucket_mb = run.facts.bucket_mb.value_or(0);
  replay.compression = run.facts.compression.value_or("");
  replay.global_batch = run.facts.global_batch.value_or(0);
  if (!replay.known()) return replay;
  for (const auto& straggler : stragglers)
    if (straggler.pattern != LatePattern::rotating) replay.late_ranks.push_back(straggler.rank_index);
  if (replay.late_ranks.size() == metrics.ranks.size()) replay.late_ranks.clear();
  const auto first = static_cast<std::ptrdiff_t>(replay.graph.first_step);
  const std::vector<double> periods(metrics.window.periods_ms.begin() + first,
                                    metrics.window.periods_ms.end());
  replay.measured_ms = quantile(periods, 0.5);
  replay.measured_mean_ms =
      std::accumulate(periods.begin(), periods.end(), 0.0) / static_cast<double>(periods.size());
  replay.measured_ci95 = median_interval(periods).value_or(Range{replay.measured_ms, replay.measured_ms});
  if (!(replay.measured_ms > 0)) {
    replay.graph.unknown = "the steps of the run have no duration";
    return replay;
  }
  const auto as_it_was = outcome_of(replay, {});
  replay.error = as_it_was.median_ms / replay.measured_ms - 1;
  replay.mean_error = as_it_was.mean_ms / replay.measured_mean_ms - 1;
  return replay;
}

Prediction predict(const Replay& replay, const Scenario& scenario) {
  Prediction prediction;
  prediction.scenario = scenario;
  prediction.unknown = replay.known() ? why_not(replay, scenario) : replay.graph.unknown;
  if (!prediction.unknown.empty()) return prediction;
  const auto outcome = outcome_of(replay, scenario);
  // The error of the replay is added, not multiplied, because it does not grow with a delay
  // or with slower transfers.
  prediction.step_ms = std::max(0.0, outcome.median_ms - replay.error * replay.measured_ms);
  prediction.change = prediction.step_ms / replay.measured_ms - 1;
  prediction.mean_step_ms = corrected_mean_ms(replay, outcome);
  prediction.mean_change = prediction.mean_step_ms / replay.measured_mean_ms - 1;
  // The band includes the choice of steps, the cost of transfers, and the error of the replay.
  const auto relative = [&](const std::optional<Range>& range, double middle) {
    return range && middle > 0 ? (range->high - range->low) / 2 / middle : 0.0;
  };
  const double chance = std::hypot(relative(replay.measured_ci95, replay.measured_ms),
                                   relative(outcome.interval, outcome.median_ms));
  double costs = 0;
  if (replay.graph.part.known() && !replay.graph.buckets.empty())
    for (const double factor : {1 - std::min(0.9, replay.graph.part.spread), 1 + replay.graph.part.spread})
      costs =
          std::max(costs, std::abs(outcome_of(replay, scenario, factor).median_ms / outcome.median_ms - 1));
  const double half = prediction.step_ms * std::hypot(chance, std::hypot(costs, replay.error));
  prediction.band = {std::max(0.0, prediction.step_ms - half), prediction.step_ms + half};
  const double ranks = scenario.ranks ? *scenario.ranks : static_cast<double>(replay.size);
  const double batch = replay.global_batch * ranks / static_cast<double>(replay.size);
  prediction.throughput = batch > 0 ? Figure::known(batch * 1e3 / prediction.mean_step_ms)
                                    : Figure::because("run.json has no global_batch");
  prediction.notes = outcome.notes;
  say_limits(replay, scenario, prediction);
  return prediction;
}

std::optional<double> mean_change(const Replay& replay, const Scenario& scenario) {
  if (!replay.known() || !why_not(replay, scenario).empty()) return std::nullopt;
  return corrected_mean_ms(replay, outcome_of(replay, scenario)) / replay.measured_mean_ms - 1;
}

std::optional<double> quick_step_ms(const Replay& replay, const Scenario& scenario) {
  if (!replay.known() || !why_not(replay, scenario).empty()) return std::nullopt;
  return outcome_of(replay, scenario, 1, few_operations).median_ms;
}

}  // namespace farandole
