#include "farandole/analyzer/metrics/efficiencies.h"

#include <algorithm>
#include <cmath>

#include "farandole/analyzer/metrics/replay.h"
#include "farandole/analyzer/statistics/estimate.h"

namespace farandole {
namespace {

void add_overlap(RunMetrics& metrics) {
  if (!metrics.no_compute.empty()) {
    metrics.overlap = Figure::because(metrics.no_compute);
    return;
  }
  double communication = 0;
  double overlap = 0;
  for (const auto& rank : metrics.ranks) {
    communication += static_cast<double>(rank.communication);
    overlap += static_cast<double>(rank.overlap);
  }
  metrics.overlap = Figure::ratio(overlap, communication, "no communication in the window");
}

void add_pop_efficiencies(RunMetrics& metrics) {
  if (!metrics.no_compute.empty()) {
    for (auto* figure :
         {&metrics.parallel_efficiency, &metrics.load_balance, &metrics.communication_efficiency})
      *figure = Figure::because(metrics.no_compute);
    return;
  }
  double sum = 0;
  double most = 0;
  for (const auto& rank : metrics.ranks) {
    sum += static_cast<double>(rank.compute);
    most = std::max(most, static_cast<double>(rank.compute));
  }
  const double mean = sum / static_cast<double>(metrics.ranks.size());
  metrics.parallel_efficiency = Figure::ratio(mean, metrics.window_ns(), empty_window);
  metrics.load_balance = Figure::ratio(mean, most, "no rank computes in the window");
  metrics.communication_efficiency = Figure::ratio(most, metrics.window_ns(), empty_window);
}

// The product of both is the communication efficiency. This also holds if the replay is slightly longer than
// the run or shorter than its longest rank.
void add_replay(RunMetrics& metrics) {
  std::string why;
  double most = 0;
  for (const auto& rank : metrics.ranks) {
    most = std::max(most, static_cast<double>(rank.compute));
    if (rank.gpu) why = "GPU runs are not replayed, because their training threads run ahead of the kernels";
  }
  if (!metrics.no_alignment.empty()) why = metrics.no_alignment;
  if (metrics.window.steps.empty()) why = metrics.window.no_steps;
  if (most <= 0) why = "no rank computes in the window";
  if (!metrics.no_compute.empty()) why = metrics.no_compute;
  if (!why.empty()) {
    metrics.serialisation = metrics.transfer_efficiency = Figure::because(why);
    return;
  }
  const double window = metrics.window_ns();
  const auto replayed = static_cast<double>(replay_length(metrics, Network::ideal));
  const double ideal = std::clamp(replayed, most, std::max(most, window));
  metrics.serialisation = Figure::ratio(most, ideal, empty_window);
  metrics.transfer_efficiency = Figure::ratio(ideal, window, empty_window);
  metrics.replay_error = static_cast<double>(replay_length(metrics, Network::as_it_was)) / window - 1;
}

// Adds up one member of each step's totals.
std::vector<double> by_step(const RunMetrics& metrics, double (*of)(const StepTotals&)) {
  std::vector<double> sums;
  for (const auto& step : metrics.steps) sums.push_back(of(step));
  return sums;
}

}  // namespace

void add_efficiencies(RunMetrics& metrics) {
  add_overlap(metrics);
  add_pop_efficiencies(metrics);
  add_replay(metrics);
}

void add_intervals(const RunFacts& facts, RunMetrics& metrics) {
  const auto& periods = metrics.window.periods_ms;
  const auto available = [&](std::size_t ranks) {
    std::vector<double> ns;
    for (const double period : periods) ns.push_back(period * 1e6 * static_cast<double>(ranks));
    return ns;
  };
  const auto of_window = [&](const Figure& figure, std::size_t ranks, double (*of)(const StepTotals&)) {
    return figure.value ? ratio_interval(*figure.value, by_step(metrics, of), available(ranks), 1)
                        : std::nullopt;
  };
  const auto ranks = metrics.ranks.size();
  metrics.parallel_ci95 =
      of_window(metrics.parallel_efficiency, ranks, [](const StepTotals& step) { return step.compute; });
  metrics.communication_ci95 = of_window(metrics.fraction(&RankMetrics::communication), ranks,
                                         [](const StepTotals& step) { return step.communication; });
  metrics.exposed_ci95 = of_window(metrics.fraction(&RankMetrics::exposed), ranks,
                                   [](const StepTotals& step) { return step.communication - step.overlap; });
  if (metrics.no_alignment.empty()) {  // Otherwise the values cover only some of the ranks.
    metrics.waiting_ci95 = of_window(metrics.fraction(&RankMetrics::waiting), ranks,
                                     [](const StepTotals& step) { return step.waiting; });
    metrics.transfer_ci95 =
        of_window(metrics.fraction(&RankMetrics::transfer), ranks,
                  [](const StepTotals& step) { return step.communication - step.waiting; });
  }
  if (const auto shares = gpu_shares(metrics)) {
    const auto gpus = std::count_if(metrics.ranks.begin(), metrics.ranks.end(),
                                    [](const RankMetrics& rank) { return rank.gpu.has_value(); });
    metrics.utilization_ci95 = of_window(Figure::known(shares->utilization), static_cast<std::size_t>(gpus),
                                         [](const StepTotals& step) { return step.kernels; });
  }
  if (metrics.overlap.value)
    metrics.overlap_ci95 = ratio_interval(
        *metrics.overlap.value, by_step(metrics, [](const StepTotals& step) { return step.overlap; }),
        by_step(metrics, [](const StepTotals& step) { return step.communication; }), 1);
  if (metrics.throughput.value)
    metrics.throughput_ci95 =
        ratio_interval(*metrics.throughput.value,
                       std::vector<double>(periods.size(), *facts.global_batch * 1e3), periods, HUGE_VAL);
}

}  // namespace farandole
