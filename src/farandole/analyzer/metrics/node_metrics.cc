#include "farandole/analyzer/metrics/node_metrics.h"

#include <map>

namespace farandole {
namespace {

NodeMetrics node_of(const std::string& host, const std::vector<const RankMetrics*>& ranks,
                    const RunMetrics& metrics) {
  NodeMetrics node;
  node.host = host;
  node.ranks = ranks.size();
  const auto seconds = [&](std::int64_t RankMetrics::*part) {
    double sum = 0;
    for (const auto* rank : ranks) {
      const auto of_rank = metrics.seconds(*rank, part);
      if (!of_rank.value) return of_rank;
      sum += *of_rank.value;
    }
    return Figure::known(sum);
  };
  node.compute_s = seconds(&RankMetrics::compute);
  node.communication_s = seconds(&RankMetrics::communication);
  node.exposed_s = seconds(&RankMetrics::exposed);
  node.other_s = seconds(&RankMetrics::other);
  node.idle_s = seconds(&RankMetrics::idle);
  node.overlap = seconds(&RankMetrics::overlap);
  if (node.overlap.value)
    node.overlap =
        Figure::ratio(*node.overlap.value, *node.communication_s.value, "no communication in the window");
  node.wait_s =
      metrics.no_waiting.empty() ? seconds(&RankMetrics::waiting) : Figure::because(metrics.no_waiting);
  std::vector<double> lateness;
  std::vector<const GpuTimes*> gpus;
  for (const auto* rank : ranks) {
    if (!rank->clock_known) node.wait_s = Figure::because("a rank's clock could not be aligned");
    lateness.insert(lateness.end(), rank->step_lateness_ms.begin(), rank->step_lateness_ms.end());
    if (rank->gpu) gpus.push_back(&*rank->gpu);
  }
  const auto late = [&](double part) {
    return lateness.empty() ? Figure::because("no collective that several ranks share in the window")
                            : Figure::known(quantile(lateness, part));
  };
  node.lateness_median_ms = late(0.5);
  node.lateness_p95_ms = late(0.95);
  node.gpu = gpu_shares(gpus);
  return node;
}

}  // namespace

std::vector<NodeMetrics> node_metrics(const RunMetrics& metrics) {
  std::map<std::string, std::vector<const RankMetrics*>> hosts;
  for (const auto& rank : metrics.ranks)
    if (!rank.host.empty()) hosts[rank.host].push_back(&rank);
  std::vector<NodeMetrics> nodes;
  for (const auto& [host, ranks] : hosts) nodes.push_back(node_of(host, ranks, metrics));
  return nodes;
}

}  // namespace farandole
