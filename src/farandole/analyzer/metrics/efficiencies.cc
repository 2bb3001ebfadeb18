#include <algorithm>
#include <cmath>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/statistics/statistics.h"

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
         {&metrics.parallel_efficiency, &metrics.load_balance, &metrics.communication_efficiency,
          &metrics.serialisation, &metrics.transfer_efficiency})
      *figure = Figure::because(metrics.no_compute);
    return;
  }
  double mean = 0;
  double most = 0;
  if (const auto parallel = metrics.fraction(&RankMetrics::compute); parallel.value)
    mean = *parallel.value * metrics.window_ns();
  for (const auto& rank : metrics.ranks)  // In unrecorded time, it computes as much as in the rest.
    if (rank.recorded > 0)
      most = std::max(
          most, static_cast<double>(rank.compute) / static_cast<double>(rank.recorded) * metrics.window_ns());
  constexpr const char* no_work = "no rank computes in the window";
  metrics.parallel_efficiency = Figure::ratio(mean, metrics.window_ns(), empty_window);
  metrics.load_balance = Figure::ratio(mean, most, no_work);
  metrics.communication_efficiency = Figure::ratio(most, metrics.window_ns(), empty_window);
  const auto& path = metrics.critical_path;
  if (const std::string why = most > 0 ? path.unknown : no_work; !why.empty()) {
    metrics.serialisation = metrics.transfer_efficiency = Figure::because(why);
    return;
  }
  // Without its transfers, the critical path is still a chain of work, so this is a lower bound.
  const double ideal = std::max(most, metrics.window_ns() - static_cast<double>(path.transfer));
  metrics.serialisation = Figure::ratio(most, ideal, empty_window);
  metrics.transfer_efficiency = Figure::ratio(ideal, metrics.window_ns(), empty_window);
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
