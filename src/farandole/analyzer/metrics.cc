#include "farandole/analyzer/metrics.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "farandole/analyzer/rank_metrics.h"

namespace farandole {
namespace {

constexpr const char* empty_window = "the window is empty";

// Two ranks' clocks may be off by both residuals.
double clock_floor_ms(const TraceHeader& header) {
  auto residuals = header.clock_residual_us;
  std::sort(residuals.rbegin(), residuals.rend());
  double floor = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, residuals.size()); ++i) floor += residuals[i] * 1e-3;
  return floor;
}

// Which kept step a time belongs to: the last one that has begun.
std::optional<std::size_t> step_at(const Window& window, std::int64_t time) {
  const auto after = std::upper_bound(window.steps.begin(), window.steps.end(), time,
                                      [](std::int64_t t, const Interval& step) { return t < step.start; });
  if (after == window.steps.begin()) return std::nullopt;
  return static_cast<std::size_t>(after - window.steps.begin()) - 1;
}

// Matches come by last arrival, so each rank's steps come in order.
void add_lateness(const Window& window, const CollectiveMatches& matches, std::vector<RankMetrics>& ranks) {
  for (const auto& match : matches.matches) {
    if (match.part_count < 2) continue;
    const auto step = step_at(window, match.last_arrival);
    if (!step) continue;
    for (const auto& part : matches.parts_of(match)) {
      auto& rank = ranks[part.rank_index];
      const double late_ms = static_cast<double>(part.start - match.first_arrival) * 1e-6;
      if (rank.lateness_steps.empty() || rank.lateness_steps.back() != *step) {
        rank.lateness_steps.push_back(*step);
        rank.step_lateness_ms.push_back(late_ms);
      } else {
        rank.step_lateness_ms.back() = std::max(rank.step_lateness_ms.back(), late_ms);
      }
    }
  }
}

Figure throughput_of(const RunModel& run, const RunMetrics& metrics) {
  if (!metrics.window.no_steps.empty()) return Figure::because(metrics.window.no_steps);
  if (!run.facts.found) return Figure::because("there is no run.json, which states the global batch");
  if (!run.facts.global_batch) return Figure::because("run.json states no global_batch");
  const auto samples = *run.facts.global_batch * static_cast<double>(metrics.window.steps.size());
  return Figure::ratio(samples, metrics.window_ns() * 1e-9, empty_window);
}

std::string why_no_gpu(const RunModel& run) {
  if (!run.facts.device) return "the trace has no GPU kernels, and no run.json says what device was used";
  if (*run.facts.device == "cpu") return "no GPU in this run";
  return "device is " + *run.facts.device + ", but the trace has no GPU kernels";
}

void add_efficiencies(RunMetrics& metrics) {
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

void add_overlap(RunMetrics& metrics) {
  double communication = 0;
  double overlap = 0;
  for (const auto& rank : metrics.ranks) {
    communication += static_cast<double>(rank.communication);
    overlap += static_cast<double>(rank.overlap);
  }
  metrics.overlap = Figure::ratio(overlap, communication, "no communication in the window");
}

std::size_t count_nodes(const RunModel& run) {
  std::set<std::string> hosts;
  for (const auto& rank : run.ranks)
    if (!rank.host.empty()) hosts.insert(rank.host);
  return hosts.size();
}

Figure mean_fraction(double sum_ns, const RunMetrics& metrics) {
  return Figure::ratio(sum_ns / static_cast<double>(metrics.ranks.size()), metrics.window_ns(), empty_window);
}

}  // namespace

Figure RunMetrics::fraction(std::int64_t RankMetrics::*part) const {
  double sum = 0;
  for (const auto& rank : ranks) sum += static_cast<double>(rank.*part);
  return mean_fraction(sum, *this);
}

Figure RunMetrics::phase_fraction(std::size_t phase) const {
  double sum = 0;
  for (const auto& rank : ranks) sum += static_cast<double>(rank.phases[phase]);
  return mean_fraction(sum, *this);
}

double RunMetrics::share(Share share) const {
  double sum = 0;
  for (const auto& rank : ranks) sum += static_cast<double>(rank.shares[static_cast<std::size_t>(share)]);
  return mean_fraction(sum, *this).value.value_or(0);
}

RunMetrics measure(const RunModel& run) {
  RunMetrics metrics;
  metrics.warnings = run.warnings;
  metrics.window = choose_window(run, metrics.warnings);
  metrics.matches = match_collectives(run, metrics.window.time);
  metrics.collectives = collective_table(run, metrics.matches);
  metrics.nodes = count_nodes(run);
  metrics.clock_floor_ms = clock_floor_ms(run.header);
  std::vector<RankWaits> waits(run.ranks.size());
  for (const auto& match : metrics.matches.matches)
    for (const auto& part : metrics.matches.parts_of(match))
      waits[part.rank_index].push_back(wait_of(match, part));
  for (std::size_t i = 0; i < run.ranks.size(); ++i)
    metrics.ranks.push_back(measure_rank(run.ranks[i], metrics.window, IntervalSet(std::move(waits[i]))));
  add_lateness(metrics.window, metrics.matches, metrics.ranks);
  if (std::none_of(metrics.ranks.begin(), metrics.ranks.end(), [](const auto& rank) { return rank.gpu; }))
    metrics.no_gpu = why_no_gpu(run);
  metrics.throughput = throughput_of(run, metrics);
  add_overlap(metrics);
  add_efficiencies(metrics);
  if (metrics.matches.unmatched > 0)
    metrics.warnings.push_back(fmt::format(
        "{} collectives are not there on all ranks of their communicator: their waiting is unknown and "
        "counted as transfer",
        metrics.matches.unmatched));
  if (run.ranks.size() > 1 && run.header.clock_residual_us.empty())
    metrics.warnings.push_back("the trace does not state how well its clocks agree: lateness may be off");
  return metrics;
}

}  // namespace farandole
