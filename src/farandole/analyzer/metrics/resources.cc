#include "farandole/analyzer/metrics/resources.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace farandole {
namespace {

std::optional<double> most_of(std::optional<double> logged, const std::optional<CounterUse>& counter) {
  return counter ? std::max(logged.value_or(0), counter->most()) : logged;
}

std::optional<double> mean_of(std::optional<double> logged, const std::optional<CounterUse>& counter) {
  return !logged && counter ? std::optional(counter->mean()) : logged;
}

void add(std::optional<double>& sum, std::optional<double> value) {
  if (value) sum = sum.value_or(0) + *value;
}

}  // namespace

Resources resources_of(const RunModel& run) {
  std::map<int, RankResources> ranks;
  const auto entry = [&](int rank) -> RankResources& {
    auto& found = ranks[rank];
    found.rank = rank;
    const auto index = static_cast<std::size_t>(rank);
    if (found.host.empty() && index < run.facts.hosts.size()) found.host = run.facts.hosts[index];
    return found;
  };
  // An earlier start with another number of ranks may have written the line.
  if (run.log.use.size() == run.world_size())
    for (std::size_t rank = 0; rank < run.log.use.size(); ++rank)
      entry(static_cast<int>(rank)).use = run.log.use[rank];
  for (const auto& rank : run.ranks) {
    const auto& counters = rank.resources;
    if (!counters.cpu_percent && !counters.memory_mib && !counters.gpu_percent && !counters.gpu_memory_mib)
      continue;
    auto& [number, host, use] = entry(rank.rank);
    if (host.empty()) host = rank.host;
    use.cpu_percent = mean_of(use.cpu_percent, counters.cpu_percent);
    use.memory_mib = most_of(use.memory_mib, counters.memory_mib);
    use.gpu_percent = mean_of(use.gpu_percent, counters.gpu_percent);
    use.gpu_memory_mib = most_of(use.gpu_memory_mib, counters.gpu_memory_mib);
  }
  Resources resources;
  std::map<std::string, LoggedUse> nodes;
  for (auto& [number, rank] : ranks) {
    auto& node = nodes[rank.host];
    add(node.cpu_percent, rank.use.cpu_percent);
    add(node.memory_mib, rank.use.memory_mib);
    resources.ranks.push_back(std::move(rank));
  }
  resources.nodes = nodes.size();
  for (const auto& [host, node] : nodes) {
    if (node.cpu_percent)
      resources.busy_cores = std::max(resources.busy_cores.value_or(0), *node.cpu_percent / 100);
    if (node.memory_mib) resources.used_mib = std::max(resources.used_mib.value_or(0), *node.memory_mib);
  }
  if (run.facts.cores) resources.asked_cores = static_cast<double>(*run.facts.cores);
  if (run.facts.memory_mib) resources.asked_mib = static_cast<double>(*run.facts.memory_mib);
  return resources;
}

std::string gib_text(double mib) {
  const double gib = mib / 1024;
  auto text = fmt::format("{:.{}f}", gib, gib >= 99.95 ? 0 : gib >= 0.995 ? 1 : 2);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

std::string Resources::text() const {
  std::string text;
  if (used_mib)
    text = asked_mib ? fmt::format("asked {} GiB, used {}", gib_text(*asked_mib), gib_text(*used_mib))
                     : fmt::format("used {} GiB", gib_text(*used_mib));
  if (busy_cores)
    text +=
        (text.empty() ? "" : "; ") + (asked_cores ? fmt::format("{:.0f} core{}, {:.1f} busy", *asked_cores,
                                                                *asked_cores == 1 ? "" : "s", *busy_cores)
                                                  : fmt::format("{:.1f} cores busy", *busy_cores));
  if (!text.empty() && nodes > 1) text += fmt::format(" (per node; the most of {} nodes)", nodes);
  return text;
}

}  // namespace farandole
