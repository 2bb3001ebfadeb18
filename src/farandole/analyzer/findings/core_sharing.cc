#include "farandole/analyzer/findings/core_sharing.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <vector>

#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

struct CoresOfHost {
  std::vector<int> ranks;  // That lack a core.
  std::set<int> cores;     // On which they were seen.
  std::string idle;
  std::int64_t waited = 0;  // By all ranks of the host.
};

std::string cores_text(const std::set<int>& cores) {
  return fmt::format("core{} {}", cores.size() == 1 ? "" : "s",
                     describe_numbers(std::vector<int>(cores.begin(), cores.end())));
}

}  // namespace

bool lacks_a_core(const RankMetrics& rank, const RunMetrics& metrics) {
  return static_cast<double>(rank.core_wait) >= 0.05 * std::max(1.0, metrics.window_ns());
}

CoreSharing find_core_sharing(const RunMetrics& metrics) {
  CoreSharing sharing;
  std::map<std::string, CoresOfHost> hosts;
  for (const auto& rank : metrics.ranks) {
    auto& host = hosts[rank.host];
    host.waited += rank.core_wait;
    if (host.idle.empty()) host.idle = rank.idle_cores;
    if (metrics.window_ns() > 0)
      sharing.longest = std::max(sharing.longest, static_cast<double>(rank.core_wait) / metrics.window_ns());
    if (!lacks_a_core(rank, metrics)) continue;
    host.ranks.push_back(rank.rank);
    host.cores.insert(rank.cores.begin(), rank.cores.end());
  }
  const auto most = std::max_element(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) {
    return a.second.waited < b.second.waited;
  });
  if (most == hosts.end()) return sharing;
  const auto& [name, host] = *most;
  const auto of_host = name.empty() ? "" : " of " + name;
  const auto nodes = std::count_if(hosts.begin(), hosts.end(),
                                   [](const auto& other) { return !other.second.ranks.empty(); });
  const auto others =
      nodes > 1 ? fmt::format(", as on {} other node{}", nodes - 1, nodes > 2 ? "s" : "") : "";
  const auto ranks = describe_ranks(host.ranks);
  if (host.ranks.empty())
    sharing.who = "all ranks, for short times";
  else if (host.cores.empty())
    sharing.who = ranks + of_host + others;
  else if (host.ranks.size() > host.cores.size())
    sharing.who = fmt::format("{} share {}{}{}", ranks, cores_text(host.cores), of_host, others);
  else
    sharing.who =
        fmt::format("{} on {}{}, which other threads use{}", ranks, cores_text(host.cores), of_host, others);
  if (!host.idle.empty()) {
    const bool one = host.idle.find_first_of(",-") == std::string::npos;
    sharing.idle = fmt::format("core{} {}{} {} idle", one ? "" : "s", host.idle, of_host, one ? "is" : "are");
  }
  return sharing;
}

}  // namespace farandole
