#include "farandole/analyzer/findings/wait_causes.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
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
namespace {

constexpr std::array<const char*, share_count> loss_names = {
    "useful compute", "waiting",     "transfer that compute does not hide",
    "data loading",   "checkpoints", "evaluation",
    "other work",     "idle time"};

struct PhaseCauses {
  double seconds = 0;
  std::map<std::size_t, double> by_rank;
};

// Returns a name with a single rank if this rank causes most of the loss and other ranks could cause it too.
std::string cause_name(const RunMetrics& metrics, const std::string& phase, const PhaseCauses& causes) {
  const auto most = std::max_element(causes.by_rank.begin(), causes.by_rank.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool one = most->second > 0.8 * causes.seconds;
  const auto rank = metrics.ranks[most->first].rank;
  if (phase.empty())
    return one ? fmt::format("waiting for rank {}, unexplained by phases", rank)
               : "waiting, unexplained by phases";
  if (phase == "other")
    return one ? fmt::format("waiting: rank {}'s other work", rank) : "waiting: uneven other work";
  return one ? fmt::format("waiting: rank {}'s {}", rank, phase) : fmt::format("waiting: uneven {}", phase);
}

void split_waiting(const RunMetrics& metrics, const std::vector<WaitCause>& causes, double fraction,
                   std::vector<Loss>& losses) {
  std::map<std::string, PhaseCauses> phases;
  double all = 0;
  for (const auto& cause : causes) {
    all += cause.seconds;
    phases[cause.phase].seconds += cause.seconds;
    phases[cause.phase].by_rank[cause.rank_index] += cause.seconds;
  }
  if (!(all > 0)) return losses.push_back({Share::waiting, loss_names[1], fraction, 0});
  for (const auto& [phase, of_phase] : phases)
    losses.push_back(
        {Share::waiting, cause_name(metrics, phase, of_phase), fraction * of_phase.seconds / all, 0});
}

}  // namespace

std::vector<Loss> find_losses(const RunMetrics& metrics, const std::vector<WaitCause>& causes) {
  std::vector<Loss> losses;
  if (!metrics.no_compute.empty()) return losses;
  for (std::size_t i = 1; i < share_count; ++i) {
    const auto share = static_cast<Share>(i);
    const double fraction = metrics.share(share);
    if (!(fraction > 0)) continue;
    if (share == Share::waiting)
      split_waiting(metrics, causes, fraction, losses);
    else if (share == Share::transfer && !metrics.no_waiting.empty())
      losses.push_back({share, "communication, not hidden by compute", fraction, 0});
    else if (share == Share::other && metrics.no_gpu.empty())
      losses.push_back({share, "GPUs wait while their hosts work", fraction, 0});
    else
      losses.push_back({share, loss_names[i], fraction, 0});
  }
  for (auto& loss : losses) loss.hours = loss.fraction * metrics.hours();
  std::stable_sort(losses.begin(), losses.end(),
                   [](const Loss& a, const Loss& b) { return a.fraction > b.fraction; });
  return losses;
}

std::string_view hours_unit(const RunMetrics& metrics) {
  return metrics.no_gpu.empty() ? "GPU-hours" : "rank-hours";
}

std::string rank_time_text(double hours, const RunMetrics& metrics) {
  const auto* const of = metrics.no_gpu.empty() ? "GPU" : "rank";
  if (hours >= 1) return fmt::format("{:.{}f} {}-hours", std::min(hours, 1e12), hours < 100 ? 1 : 0, of);
  if (hours * 60 >= 1) return fmt::format("{:.1f} {}-minutes", hours * 60, of);
  return fmt::format("{:.2g} {}-seconds", hours * 3600, of);
}

}  // namespace farandole
