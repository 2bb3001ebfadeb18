#include "farandole/analyzer/report/nodes_text.h"

#include <algorithm>
#include <fmt/format.h>

#include "farandole/analyzer/metrics/node_metrics.h"
#include "farandole/analyzer/report/units.h"

namespace farandole {
namespace {

constexpr std::size_t max_rows = 16;

std::string time_of(const Figure& ms) {
  return ms.value ? time_text(1e3 * *ms.value) : "unknown";
}

}  // namespace

std::string nodes_text(const RunMetrics& metrics, const Style& style) {
  if (metrics.nodes < 2 || metrics.window_ns() <= 0) return "";
  auto nodes = node_metrics(metrics);
  const auto all = nodes.size();
  if (all > max_rows) {  // The nodes with the largest lateness are shown.
    std::stable_sort(nodes.begin(), nodes.end(), [](const NodeMetrics& a, const NodeMetrics& b) {
      return a.lateness_median_ms.value.value_or(0) > b.lateness_median_ms.value.value_or(0);
    });
    nodes.resize(max_rows / 2);
  }
  TextTable table({"node", "ranks", "compute", "communication", "overlap", "waiting", "late, median", "p95"},
                  1);
  for (const auto& node : nodes) {
    const double window = metrics.window_ns() * 1e-9 * static_cast<double>(node.ranks);
    const auto part = [&](const Figure& seconds) {
      return seconds.value ? percent(*seconds.value / window) : std::string("–");
    };
    table.add({shortened(node.host, 24), std::to_string(node.ranks), part(node.compute_s),
               part(node.communication_s), node.overlap.value ? percent(*node.overlap.value) : "–",
               part(node.wait_s), time_of(node.lateness_median_ms), time_of(node.lateness_p95_ms)});
  }
  auto text = "\n" + style.bold("By node") + "  " +
              style.dim("mean of its ranks, % of the window; overlap: % of communication") + "\n" +
              table.text(style);
  if (nodes.size() < all)
    text +=
        style.dim(fmt::format("  the {} latest of {} nodes; --format json lists all\n", nodes.size(), all));
  return text;
}

}  // namespace farandole
