#include "farandole/analyzer/stragglers.h"

#include <algorithm>
#include <numeric>

namespace farandole {
namespace {

struct Lateness {
  std::vector<std::size_t> steps;
  std::vector<double> ms;
  double sum_ms = 0;
};

std::vector<std::vector<double>> lateness_by_step(const RunMetrics& metrics) {
  std::vector<std::vector<double>> by_step(metrics.window.steps.size());
  for (const auto& rank : metrics.ranks)
    for (std::size_t i = 0; i < rank.step_lateness_ms.size(); ++i)
      by_step[rank.lateness_steps[i]].push_back(rank.step_lateness_ms[i]);
  return by_step;
}

// The lower median over ranks of each kept step's lateness: what a rank must exceed to be late where one rank
// alone is early.
std::vector<double> typical_lateness_ms(std::vector<std::vector<double>> by_step) {
  std::vector<double> typical;
  for (auto& lateness : by_step) {
    if (lateness.empty()) lateness.push_back(0);
    const auto middle = lateness.begin() + static_cast<std::ptrdiff_t>((lateness.size() - 1) / 2);
    std::nth_element(lateness.begin(), middle, lateness.end());
    typical.push_back(*middle);
  }
  return typical;
}

Lateness late_steps_of(const RankMetrics& rank, const std::vector<double>& typical_ms, double threshold_ms) {
  Lateness late;
  for (std::size_t i = 0; i < rank.step_lateness_ms.size(); ++i) {
    const double excess_ms = rank.step_lateness_ms[i] - typical_ms[rank.lateness_steps[i]];
    if (excess_ms <= threshold_ms) continue;
    late.steps.push_back(rank.lateness_steps[i]);
    late.ms.push_back(rank.step_lateness_ms[i]);
    late.sum_ms += excess_ms;
  }
  return late;
}

double mean_phase_ms(const RankMetrics& rank, const std::vector<std::size_t>& steps, std::size_t phase) {
  double sum = 0;
  for (const auto step : steps) sum += static_cast<double>(rank.step_phases[step][phase]);
  return sum * 1e-6 / static_cast<double>(steps.size());
}

// The phase in which the rank exceeds the others' median most, if that explains a quarter of the lateness.
std::string phase_behind(const RunMetrics& metrics, std::size_t rank_index, const Lateness& late) {
  std::string_view found;
  double most = 0.25 * late.sum_ms / static_cast<double>(late.steps.size());
  for (std::size_t phase = 0; phase < phase_count; ++phase) {
    if (phase == static_cast<std::size_t>(Phase::wait)) continue;
    std::vector<double> others;
    for (std::size_t i = 0; i < metrics.ranks.size(); ++i)
      if (i != rank_index) others.push_back(mean_phase_ms(metrics.ranks[i], late.steps, phase));
    const double excess = mean_phase_ms(metrics.ranks[rank_index], late.steps, phase) - quantile(others, 0.5);
    if (excess > most) {
      most = excess;
      found = phase_names[phase];
    }
  }
  return std::string(found);
}

// In how many of its steps the rank comes later than the median of the others: where ranks take turns, half.
double share_behind_others(const std::vector<std::vector<double>>& by_step, const RankMetrics& rank) {
  std::size_t behind = 0;
  for (std::size_t i = 0; i < rank.step_lateness_ms.size(); ++i) {
    const auto& all = by_step[rank.lateness_steps[i]];
    const double own = rank.step_lateness_ms[i];
    const auto later = std::count_if(all.begin(), all.end(), [&](double ms) { return ms > own; });
    const auto earlier = std::count_if(all.begin(), all.end(), [&](double ms) { return ms < own; });
    behind += earlier > later ? 1 : 0;
  }
  return static_cast<double>(behind) / static_cast<double>(rank.step_lateness_ms.size());
}

LatePattern pattern_of(std::size_t late, std::size_t all, double behind) {
  if (2 * late >= all && all > 3 && behind >= 0.75) return LatePattern::chronic;
  return late <= std::max<std::size_t>(3, all / 100) ? LatePattern::one_off : LatePattern::rotating;
}

}  // namespace

std::string_view name_of(LatePattern pattern) {
  switch (pattern) {
    case LatePattern::chronic:
      return "chronic";
    case LatePattern::rotating:
      return "rotating";
    default:
      return "one-off";
  }
}

std::vector<Straggler> find_stragglers(const RunMetrics& metrics) {
  struct Candidate {
    Straggler straggler;
    double sum_ms = 0;
  };
  if (metrics.ranks.size() < 2 || metrics.window.step_ms.empty()) return {};
  const double threshold_ms = std::max(metrics.clock_floor_ms, 0.02 * quantile(metrics.window.step_ms, 0.5));
  const double worth_ms = 0.005 * metrics.window_ns() * 1e-6;
  const auto by_step = lateness_by_step(metrics);
  const auto typical_ms = typical_lateness_ms(by_step);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < metrics.ranks.size(); ++i) {
    if (!metrics.ranks[i].clock_known) continue;
    const auto late = late_steps_of(metrics.ranks[i], typical_ms, threshold_ms);
    if (late.steps.empty() || late.sum_ms < worth_ms) continue;
    Straggler straggler{i,
                        pattern_of(late.steps.size(), metrics.window.steps.size(),
                                   share_behind_others(by_step, metrics.ranks[i])),
                        "", quantile(late.ms, 0.5), late.steps.size()};
    straggler.phase = phase_behind(metrics, i, late);
    candidates.push_back({std::move(straggler), late.sum_ms});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.sum_ms > b.sum_ms; });
  std::vector<Straggler> stragglers;
  for (auto& candidate : candidates) stragglers.push_back(std::move(candidate.straggler));
  return stragglers;
}

}  // namespace farandole
