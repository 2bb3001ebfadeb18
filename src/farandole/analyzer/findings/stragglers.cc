#include "farandole/analyzer/findings/stragglers.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>

namespace farandole {
namespace {

// The steps in which a rank is late.
struct Lateness {
  std::vector<std::size_t> steps;
  std::vector<double> ms;         // Delay relative to the first rank.
  std::vector<double> excess_ms;  // Delay relative to the typical rank.
  double sum_ms = 0;              // Sum of excess_ms.
};

std::vector<std::vector<double>> lateness_by_step(const RunMetrics& metrics) {
  std::vector<std::vector<double>> by_step(metrics.window.steps.size());
  for (const auto& rank : metrics.ranks)
    for (std::size_t i = 0; i < rank.step_lateness_ms.size(); ++i)
      by_step[rank.lateness_steps[i]].push_back(rank.step_lateness_ms[i]);
  return by_step;
}

template <class Value>
Value lower_median(std::vector<Value>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// For each kept step, the lower median over all ranks. A rank is late if it exceeds this value; therefore one
// early rank does not make the others late.
struct Typical {
  std::vector<double> lateness_ms;
  std::vector<PhaseTimes> phases;
};

Typical typical_of(const RunMetrics& metrics, std::vector<std::vector<double>> lateness_by_step) {
  Typical typical;
  std::vector<std::int64_t> times(metrics.ranks.size());
  for (std::size_t step = 0; step < lateness_by_step.size(); ++step) {
    auto& lateness = lateness_by_step[step];
    typical.lateness_ms.push_back(lateness.empty() ? 0 : lower_median(lateness));
    auto& phases = typical.phases.emplace_back();
    for (std::size_t phase = 0; phase < phase_count; ++phase) {
      for (std::size_t i = 0; i < times.size(); ++i) times[i] = metrics.ranks[i].step_phases[step][phase];
      phases[phase] = lower_median(times);
    }
  }
  return typical;
}

Lateness late_steps_of(const RankMetrics& rank, const Typical& typical, double threshold_ms) {
  Lateness late;
  for (std::size_t i = 0; i < rank.step_lateness_ms.size(); ++i) {
    const double excess_ms = rank.step_lateness_ms[i] - typical.lateness_ms[rank.lateness_steps[i]];
    if (excess_ms <= threshold_ms) continue;
    late.steps.push_back(rank.lateness_steps[i]);
    late.ms.push_back(rank.step_lateness_ms[i]);
    late.excess_ms.push_back(excess_ms);
    late.sum_ms += excess_ms;
  }
  return late;
}

// Returns the phase in which the rank exceeds the typical rank most, in the median of these steps, if this
// phase explains at least a quarter of the lateness.
std::string phase_behind(const RankMetrics& rank, const Lateness& late, const Typical& typical) {
  std::string_view found;
  double most_ms = 0.25 * quantile(late.excess_ms, 0.5);
  for (std::size_t phase = 0; phase < phase_count; ++phase) {
    if (phase == static_cast<std::size_t>(Phase::wait)) continue;
    std::vector<double> excess_ms;
    for (const auto step : late.steps)
      excess_ms.push_back(static_cast<double>(rank.step_phases[step][phase] - typical.phases[step][phase]) *
                          1e-6);
    const double median_ms = quantile(std::move(excess_ms), 0.5);
    if (median_ms <= most_ms) continue;
    most_ms = median_ms;
    found = phase_names[phase];
  }
  return std::string(found);
}

// Returns in how many of its steps the rank comes later than the median of the others. If ranks are late by
// chance, this is half of the steps.
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

// Returns whether chance does not explain how often the rank is late. If ranks are late by chance, each comes
// after the others in half of the steps; the limit is three standard deviations above that.
bool is_chronic(std::size_t late, std::size_t all, double behind) {
  const double by_chance = 0.5 + 1.5 / std::sqrt(static_cast<double>(all));
  return 2 * late >= all && all > 3 && behind >= std::min(0.75, by_chance);
}

// Returns the fewest steps, the latest first, that make up two thirds of the rank's lateness.
Lateness main_part_of(const Lateness& late) {
  std::vector<std::size_t> order(late.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return late.excess_ms[a] > late.excess_ms[b]; });
  Lateness part;
  for (const auto i : order) {
    if (part.sum_ms >= late.sum_ms * 2 / 3) break;
    part.steps.push_back(late.steps[i]);
    part.ms.push_back(late.ms[i]);
    part.excess_ms.push_back(late.excess_ms[i]);
    part.sum_ms += late.excess_ms[i];
  }
  return part;
}

// Describes a rank that is late in some steps. A chronic straggler is judged and described by all of its
// steps, because the steps in which it is late are also those in which other ranks were early by chance.
Straggler describe(const RunMetrics& metrics, std::size_t rank_index, const Lateness& late,
                   const Typical& typical, double behind) {
  const auto& rank = metrics.ranks[rank_index];
  const auto all = metrics.window.steps.size();
  const auto straggler = [&](LatePattern pattern, const Lateness& steps, std::size_t count) {
    return Straggler{rank_index, pattern, phase_behind(rank, steps, typical), quantile(steps.ms, 0.5), count};
  };
  if (is_chronic(late.steps.size(), all, behind))
    return straggler(LatePattern::chronic, late_steps_of(rank, typical, -DBL_MAX), late.steps.size());
  const auto part = main_part_of(late);
  if (part.steps.size() <= std::max<std::size_t>(3, all / 100))
    return straggler(LatePattern::one_off, part, part.steps.size());
  return straggler(LatePattern::rotating, late, late.steps.size());
}

}  // namespace

std::string_view name_of(LatePattern pattern) {
  static constexpr const char* names[] = {"chronic", "rotating", "one-off"};
  return names[static_cast<std::size_t>(pattern)];
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
  const auto typical = typical_of(metrics, by_step);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < metrics.ranks.size(); ++i) {
    if (!metrics.ranks[i].clock_known) continue;
    const auto late = late_steps_of(metrics.ranks[i], typical, threshold_ms);
    if (late.steps.empty() || late.sum_ms < worth_ms) continue;
    const double behind = share_behind_others(by_step, metrics.ranks[i]);
    candidates.push_back({describe(metrics, i, late, typical, behind), late.sum_ms});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.sum_ms > b.sum_ms; });
  std::vector<Straggler> stragglers;
  for (auto& candidate : candidates) stragglers.push_back(std::move(candidate.straggler));
  return stragglers;
}

}  // namespace farandole
