#include "farandole/analyzer/findings/wait_causes.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <utility>

#include "farandole/analyzer/findings/core_sharing.h"

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
    std::map<std::size_t, double> core;  // Seconds of the ranks.
    for (const auto& [key, seconds] : seconds_) {
      if (!(seconds > 0)) continue;
      const double by_core = seconds * part_of_core_wait(key.first);
      core[key.first] += by_core;
      if (seconds > by_core)
        causes.push_back({key.second < phase_count ? std::string(phase_names[key.second]) : "", key.first,
                          seconds - by_core});
    }
    for (const auto& [rank, seconds] : core)
      if (seconds > 0) causes.push_back({std::string(core_wait), rank, seconds});
    std::stable_sort(causes.begin(), causes.end(),
                     [](const WaitCause& a, const WaitCause& b) { return a.seconds > b.seconds; });
    return causes;
  }

 private:
  // Returns how much of what the rank takes longer than others is its wait for a core.
  double part_of_core_wait(std::size_t rank_index) const {
    const auto& rank = metrics_.ranks[rank_index];
    if (!lacks_a_core(rank, metrics_)) return 0;
    double all = 0;
    for (auto step = excess_.lower_bound({rank_index, 0}); step != excess_.end(); ++step) {
      if (step->first.first != rank_index) break;
      for (const double ns : step->second) all += ns;
    }
    const auto waited = static_cast<double>(rank.core_wait);
    return waited / std::max(all, waited);
  }

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

constexpr std::string_view with_itself = ", and waiting for it";

constexpr std::array<const char*, share_count> loss_names = {"useful compute",
                                                             "waiting for a core",
                                                             "waiting",
                                                             "transfer that compute does not hide",
                                                             "copies from, to and within GPUs",
                                                             "data loading",
                                                             "checkpoints",
                                                             "evaluation",
                                                             "other work",
                                                             "idle time"};

constexpr std::array<std::pair<std::string_view, Share>, 4> shares_of_phases = {
    {{"data", Share::data},
     {"checkpoint", Share::checkpoint},
     {"evaluation", Share::evaluation},
     {"other", Share::other}}};

// Returns the share that the time in this phase has; nullopt if it is compute, or if a GPU works meanwhile.
std::optional<Share> share_of(const WaitCause& cause, const RunMetrics& metrics) {
  for (const auto& [phase, share] : shares_of_phases)
    if (cause.phase == phase && !(share == Share::other && metrics.ranks[cause.rank_index].gpu)) return share;
  return std::nullopt;
}

struct PhaseCauses {
  double fraction = 0, own = 0;
  std::map<std::size_t, double> by_rank;
};

// Returns a name with a single rank if this rank causes most of the loss and other ranks could cause it too.
std::string cause_name(const RunMetrics& metrics, const std::string& phase, const PhaseCauses& causes) {
  const auto most = std::max_element(causes.by_rank.begin(), causes.by_rank.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool one = most->second > 0.8 * causes.fraction;
  const auto rank = metrics.ranks[most->first].rank;
  if (phase.empty())
    return one ? fmt::format("waiting for rank {}, unexplained by phases", rank)
               : "waiting, unexplained by phases";
  if (phase == core_wait) return "waiting for ranks without a core";
  const auto what = phase == "other" ? std::string("other work") : phase;
  const auto whose = one ? fmt::format("rank {}'s {}", rank, what) : "uneven " + what;
  return causes.own > 0.05 * causes.fraction ? whose + std::string(with_itself) : "waiting: " + whose;
}

}  // namespace

std::vector<CausedLoss> find_caused_losses(const RunMetrics& metrics, const std::vector<WaitCause>& causes) {
  double all = 0;
  for (const auto& cause : causes) all += cause.seconds;
  const auto ranks = static_cast<double>(metrics.ranks.size());
  std::vector<CausedLoss> losses;
  for (const auto& cause : causes) {
    auto& loss = losses.emplace_back(CausedLoss{cause});
    if (all > 0) loss.waiting = metrics.share(Share::waiting) * cause.seconds / all;
    const auto share = share_of(cause, metrics);
    if (!share || ranks < 2 || !(metrics.window_ns() > 0)) continue;
    const auto spent =
        static_cast<double>(metrics.ranks[cause.rank_index].shares[static_cast<std::size_t>(*share)]);
    // While the rank took longer than the others, each of them waited.
    loss.own = std::min(loss.waiting / (ranks - 1), spent / ranks / metrics.window_ns());
  }
  return losses;
}

std::vector<Loss> find_losses(const RunMetrics& metrics, const std::vector<WaitCause>& causes) {
  std::vector<Loss> losses;
  if (!metrics.no_compute.empty()) return losses;
  std::array<double, share_count> left{};
  for (std::size_t i = 1; i < share_count; ++i) left[i] = metrics.share(static_cast<Share>(i));
  std::map<std::string, PhaseCauses> phases;
  for (const auto& [cause, waiting, own] : find_caused_losses(metrics, causes)) {
    auto& phase = phases[cause.phase];
    phase.fraction += waiting + own;
    phase.own += own;
    phase.by_rank[cause.rank_index] += waiting + own;
    left[static_cast<std::size_t>(Share::waiting)] -= waiting;
    if (own > 0) left[static_cast<std::size_t>(*share_of(cause, metrics))] -= own;
  }
  for (const auto& [phase, of_phase] : phases)
    if (of_phase.fraction > 0)
      losses.push_back({phase == core_wait ? Share::core : Share::waiting,
                        cause_name(metrics, phase, of_phase), of_phase.fraction, 0});
  for (std::size_t i = 1; i < share_count; ++i) {
    const auto share = static_cast<Share>(i);
    if (!(left[i] > 1e-12)) continue;
    if (share == Share::transfer && !metrics.no_waiting.empty())
      losses.push_back({share, "communication, not hidden by compute", left[i], 0});
    else if (share == Share::other && metrics.no_gpu.empty())
      losses.push_back({share,
                        fmt::format("GPUs idle: {}",
                                    idle_cause_names[static_cast<std::size_t>(idle_cause_of_work(metrics))]),
                        left[i], 0});
    else
      losses.push_back({share, loss_names[i], left[i], 0});
  }
  for (auto& loss : losses) loss.hours = loss.fraction * metrics.hours();
  std::stable_sort(losses.begin(), losses.end(),
                   [](const Loss& a, const Loss& b) { return a.fraction > b.fraction; });
  return losses;
}

IdleCause idle_cause_of_work(const RunMetrics& metrics) {
  const auto gpu = gpu_shares(metrics);
  const auto part = [&](IdleCause cause) { return gpu->idle_causes[static_cast<std::size_t>(cause)]; };
  return gpu && part(IdleCause::queue) > part(IdleCause::host) ? IdleCause::queue : IdleCause::host;
}

std::string cause_in(const Loss& loss) {
  auto name = loss.name;
  if (loss.share != Share::waiting) return name;
  for (const std::string_view prefix : {"waiting: ", "waiting for ", "waiting, "})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  if (name.ends_with(with_itself)) name.erase(name.size() - with_itself.size());
  return name;
}

std::vector<LossGroup> group_losses(const std::vector<Loss>& losses) {
  std::vector<LossGroup> groups;
  for (const auto& loss : losses) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const LossGroup& one) { return one.share == loss.share; });
    if (group == groups.end()) {
      groups.push_back({loss.share, loss_names[static_cast<std::size_t>(loss.share)], 0, 0, {}});
      group = groups.end() - 1;
    }
    group->fraction += loss.fraction;
    group->hours += loss.hours;
    group->parts.push_back(loss);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const LossGroup& a, const LossGroup& b) { return a.fraction > b.fraction; });
  return groups;
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
