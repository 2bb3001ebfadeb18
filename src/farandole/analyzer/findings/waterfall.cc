#include "farandole/analyzer/findings/waterfall.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>

namespace farandole {
namespace {

constexpr std::array<const char*, share_count> names = {
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
  if (!(all > 0)) return losses.push_back({Share::waiting, names[1], fraction, 0});
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
      losses.push_back({share, names[i], fraction, 0});
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
