#include "farandole/analyzer/compare/comparison_text.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "farandole/analyzer/findings/wait_causes.h"

namespace farandole {
namespace {

// Waiting time in seconds per step of one run, by late rank and its phase.
using Waits = std::map<std::pair<int, std::string>, double>;
Waits waits_of(const Runs& runs) {
  Waits waits;
  for (const auto* run : runs)
    for (const auto& cause : find_wait_causes(*run))
      waits[{run->ranks[cause.rank_index].rank, cause.phase}] +=
          cause.seconds /
          static_cast<double>(std::max<std::size_t>(1, run->window.steps.size()) * runs.size());
  return waits;
}

// Returns the cause of waiting that changed most in the direction of `sign`.
std::string waited_for(const Runs& now, const Runs& before, double sign) {
  auto changes = waits_of(now);
  for (const auto& [cause, seconds] : waits_of(before)) changes[cause] -= seconds;
  const auto most = std::max_element(changes.begin(), changes.end(), [&](const auto& a, const auto& b) {
    return sign * a.second < sign * b.second;
  });
  if (most == changes.end() || !(sign * most->second > 0)) return "";
  const auto& [rank, phase] = most->first;
  return phase.empty() ? fmt::format(" (mainly for rank {})", rank)
                       : fmt::format(" (mainly for rank {}'s {})", rank, phase);
}

// Returns the phase whose significant change is largest in the direction of the step's change, if it is at
// least half of the step's change.
std::string cause_of(const Comparison& comparison, const Difference& step, const Runs& now,
                     const Runs& before) {
  const Difference* cause = nullptr;
  const double all = *step.now.value - *step.before.value;
  double most = 0.5 * std::abs(all);
  for (std::size_t i = 0; i < phase_count; ++i) {
    const auto* phase = find_difference(comparison, std::string(phase_names[i]) + "_ms");
    if (phase == nullptr || phase->verdict == Change::same) continue;
    const double ms = (all > 0 ? 1 : -1) * (*phase->now.value - *phase->before.value);
    if (ms < most) continue;
    most = ms;
    cause = phase;
  }
  if (cause == nullptr) return "; no single phase explains half of the change";
  const auto phase = cause->name.substr(0, cause->name.size() - 3);
  return fmt::format("; the main cause is {}, which takes {:.2f} instead of {:.2f} ms per step{}", phase,
                     *cause->now.value, *cause->before.value,
                     phase == "wait" ? waited_for(now, before, all > 0 ? 1 : -1) : "");
}

constexpr const char* no_repeats =
    " The run-to-run variance is unknown; repeated runs are needed: RUN RUN --against OLD OLD.";

std::string main_verdict(const Comparison& comparison, const Runs& now, const Runs& before) {
  const auto* step = find_difference(comparison, "step_ms");
  const auto* rate = find_difference(comparison, "throughput");
  const auto* main = rate != nullptr && rate->change.value ? rate : step;
  if (main == nullptr) return "The runs cannot be compared.";
  if (!main->change.value) return "The runs cannot be compared: " + main->change.unknown + ".";
  const auto* const what = main == rate ? "throughput" : "step time";
  const auto change = 100 * *main->change.value;
  if (!main->ci95)
    return fmt::format("The change in {}, {:+.1f} %, may be chance, because there are too few steps.", what,
                       change);
  const auto interval =
      fmt::format("95 %: {:+.1f} to {:+.1f} %", 100 * main->ci95->low, 100 * main->ci95->high);
  if (main->verdict == Change::same)
    return fmt::format("No significant difference in {} ({:+.1f} %, {}).", what, change, interval);
  const auto cause = step != nullptr && step->change.value ? cause_of(comparison, *step, now, before) : "";
  return fmt::format("{}: {} is {:.1f} % {} ({}){}.{}", main->verdict == Change::worse ? "Worse" : "Better",
                     what, std::abs(change), change > 0 ? "higher" : "lower", interval, cause,
                     comparison.between_runs ? "" : no_repeats);
}

std::string_view name_of(Change change) {
  switch (change) {
    case Change::better:
      return "better";
    case Change::worse:
      return "worse";
    default:
      return "same";
  }
}

}  // namespace

std::string comparison_verdict(const Comparison& comparison, const Runs& now, const Runs& before) {
  const auto verdict = main_verdict(comparison, now, before);
  const auto ranks_now = now.front()->size();
  const auto ranks_before = before.front()->size();
  if (ranks_now == ranks_before) return verdict;
  return fmt::format("The runs have different numbers of ranks ({} and {}). {}", ranks_now, ranks_before,
                     verdict);
}

std::string_view verdict_text(const Difference& difference) {
  return difference.ci95 ? name_of(difference.verdict) : "unknown";
}

std::string value_text(const Difference& difference, const Figure& figure) {
  if (!figure.value) return "unknown";
  const double value = std::clamp(*figure.value, -1e12, 1e12);
  if (!difference.relative) return fmt::format("{:.1f} %", 100 * value);
  if (difference.name.ends_with("_ms")) return fmt::format("{:.2f} ms", value);
  return fmt::format("{:.1f}", value);
}

std::string change_text(const Difference& difference, double change) {
  const double percent = 100 * std::clamp(change, -1e6, 1e6);
  return difference.relative ? fmt::format("{:+.1f} %", percent) : fmt::format("{:+.1f} points", percent);
}

std::string interval_text(const Difference& difference) {
  if (!difference.ci95) return "–";
  const double low = 100 * std::clamp(difference.ci95->low, -1e6, 1e6);
  return fmt::format("{:+.1f} to {}", low, change_text(difference, difference.ci95->high));
}

}  // namespace farandole
