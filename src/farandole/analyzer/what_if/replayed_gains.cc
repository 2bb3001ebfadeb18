#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <optional>
#include <string>

#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {
namespace {

constexpr std::size_t most_replayed_ranks = 64;

Scenario with_buckets(double mib) {
  Scenario scenario;
  scenario.text = fmt::format("bucket-mb={:g}", mib);
  scenario.bucket_mb = mib;
  return scenario;
}

// Gains below the error of the replay are not significant.
double least_gain(const Replay& replay) {
  return std::max(0.02, std::abs(replay.error));
}

void add(const Replay& replay, Finding& finding, const Scenario& scenario, double gain,
         const std::string& said) {
  finding.replayed = ReplayedGain{scenario.text, 100 * gain};
  finding.gain_percent = std::max(finding.gain_percent, 100 * gain);
  finding.evidence += fmt::format("; in a replay {}, the run is ", said) +
                      (gain < least_gain(replay) ? std::string("hardly shorter")
                                                 : fmt::format("{:.1f} % shorter", 100 * gain));
}

void add(const Replay& replay, Finding& finding, const std::string& scenario, const std::string& said) {
  const auto changed = parse_scenario(scenario);
  if (const auto change = mean_change(replay, changed)) add(replay, finding, changed, -*change, said);
}

// Sizes in MiB, ascending: around the size of the run or, if one bucket has all gradients, below it.
std::vector<double> sizes_to_try(const Replay& replay) {
  const auto& gradients = replay.graph.gradients;
  const auto all = std::accumulate(gradients.begin(), gradients.end(), std::uint64_t{0});
  const double middle = std::min(replay.bucket_mb, static_cast<double>(all) / (1 << 20));
  std::vector<double> sizes;
  for (const double factor : {0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0}) {
    const double digits = std::pow(10, std::floor(std::log10(factor * middle)) - 1);
    const double size = std::round(factor * middle / digits) * digits;  // Rounded to two digits.
    if (size > 1 / largest_condition && size <= largest_condition && size != replay.bucket_mb)
      sizes.push_back(size);
  }
  return sizes;
}

// Returns 0 if the replay cannot decide.
double best_size(const Replay& replay, const std::vector<double>& sizes) {
  double best = replay.bucket_mb;
  auto best_ms = quick_step_ms(replay, {});
  for (const double size : sizes) {
    const auto step_ms = quick_step_ms(replay, with_buckets(size));
    if (!step_ms || !best_ms) return 0;
    if (*step_ms >= *best_ms) continue;
    best = size;
    best_ms = step_ms;
  }
  return best;
}

void add_bucket_size(const Replay& replay, Finding& finding) {
  if (!(replay.bucket_mb > 0) || replay.graph.gradients.empty()) return;
  const auto sizes = sizes_to_try(replay);
  const auto size = best_size(replay, sizes);
  if (size == 0 || sizes.empty()) return;
  const auto best = with_buckets(size);
  const double gain = size == replay.bucket_mb ? 0 : -mean_change(replay, best).value_or(0);
  if (gain < least_gain(replay)) {
    finding.evidence +=
        fmt::format("; in a replay with buckets of {:g} to {:g} MiB, the run is hardly shorter",
                    sizes.front(), sizes.back());
    if (least_gain(replay) < 0.05) finding.change = remedy(Topic::send_less, replay.kind);
    return;
  }
  add(replay, finding, best, gain, fmt::format("with buckets of {:g} MiB", size));
  finding.change =
      fmt::format("use buckets of {:g} MiB (they were {:g}; {}), or {}", size, replay.bucket_mb,
                  remedy(Topic::set_buckets, replay.kind), remedy(Topic::send_less, replay.kind));
}

}  // namespace

bool can_replay(const RunMetrics& metrics, const std::vector<Finding>& findings) {
  return metrics.ranks.size() <= most_replayed_ranks && !metrics.is_sample() &&
         std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.remedy != Remedy::unknown; });
}

void add_replayed_gains(const Replay& replay, std::vector<Finding>& findings) {
  if (!replay.known()) return;
  const auto of_late_ranks = std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.remedy == Remedy::no_straggler;
  });
  for (auto& finding : findings) {
    switch (finding.remedy) {
      case Remedy::unknown:
        break;
      case Remedy::no_straggler:
        // The replay has no late rank at all. With several late ranks, the gain would not be that of one.
        if (of_late_ranks == 1 && !replay.late_ranks.empty())
          add(replay, finding, "no-straggler", "without late ranks");
        break;
      case Remedy::no_checkpoint:
        add(replay, finding, "no-checkpoint", "without checkpoints");
        break;
      case Remedy::bucket_size:
        add_bucket_size(replay, finding);
        break;
    }
  }
}

}  // namespace farandole
