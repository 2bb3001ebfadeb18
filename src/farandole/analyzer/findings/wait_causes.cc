#include "farandole/analyzer/findings/wait_causes.h"

#include <algorithm>
#include <array>
#include <map>

namespace farandole {
namespace {

using Excess = std::array<double, phase_count>;  // Nanoseconds, by phase.

// Returns by how much each phase of the rank exceeds the median of the other ranks in one step.
Excess excess_of(const RunMetrics& metrics, std::size_t rank_index, std::size_t step) {
  Excess excess{};
  std::vector<std::int64_t> others(metrics.ranks.size() - 1);
  for (std::size_t phase = 0; phase < phase_count; ++phase) {
    if (phase == static_cast<std::size_t>(Phase::wait)) continue;
    std::size_t next = 0;
    for (std::size_t i = 0; i < metrics.ranks.size(); ++i)
      if (i != rank_index) others[next++] = metrics.ranks[i].step_phases[step][phase];
    const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
    std::nth_element(others.begin(), middle, others.end());
    excess[phase] = static_cast<double>(
        std::max<std::int64_t>(0, metrics.ranks[rank_index].step_phases[step][phase] - *middle));
  }
  return excess;
}

class Causes {
 public:
  explicit Causes(const RunMetrics& metrics) : metrics_(metrics) {}

  void add(const CollectiveMatch& match, double waited_ns) {
    const double late_ns = static_cast<double>(match.last_arrival - match.first_arrival);
    const auto step = step_at(metrics_.window, match.last_arrival);
    double explained = 0;
    if (step && metrics_.ranks.size() > 1 && late_ns > metrics_.clock_floor_ms * 1e6) {
      const auto& excess = excess_in(match.last_rank, *step);
      double sum = 0;
      for (const double ns : excess) sum += ns;
      // If the excess is larger than the lateness, the phases share the lateness. If it is smaller, the
      // rest has no phase.
      const double scale = sum > 0 ? waited_ns / std::max(sum, late_ns) : 0;
      for (std::size_t phase = 0; phase < phase_count; ++phase) {
        if (excess[phase] > 0) seconds_[{match.last_rank, phase}] += excess[phase] * scale * 1e-9;
        explained += excess[phase] * scale;
      }
    }
    seconds_[{match.last_rank, phase_count}] += (waited_ns - explained) * 1e-9;
  }

  std::vector<WaitCause> sorted() const {
    std::vector<WaitCause> causes;
    for (const auto& [key, seconds] : seconds_)
      if (seconds > 0)
        causes.push_back(
            {key.second < phase_count ? std::string(phase_names[key.second]) : "", key.first, seconds});
    std::stable_sort(causes.begin(), causes.end(),
                     [](const WaitCause& a, const WaitCause& b) { return a.seconds > b.seconds; });
    return causes;
  }

 private:
  const Excess& excess_in(std::size_t rank_index, std::size_t step) {
    const auto [found, is_new] = excess_.try_emplace({rank_index, step});
    if (is_new) found->second = excess_of(metrics_, rank_index, step);
    return found->second;
  }

  const RunMetrics& metrics_;
  std::map<std::pair<std::size_t, std::size_t>, Excess> excess_;
  std::map<std::pair<std::size_t, std::size_t>, double> seconds_;  // Key: rank index and phase.
};

}  // namespace

std::vector<WaitCause> find_wait_causes(const RunMetrics& metrics) {
  const auto& matches = metrics.matches;
  std::vector<double> waited_ns(matches.matches.size());
  for (const auto& parts : matches.parts)
    for (const auto& part : parts) {
      const auto wait = wait_of(matches.matches[part.match], part);
      waited_ns[part.match] += static_cast<double>(wait.end - wait.start);
    }
  Causes causes(metrics);
  for (std::size_t i = 0; i < waited_ns.size(); ++i)
    if (waited_ns[i] > 0) causes.add(matches.matches[i], waited_ns[i]);
  return causes.sorted();
}

}  // namespace farandole
