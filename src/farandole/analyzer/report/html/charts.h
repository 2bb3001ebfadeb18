// The pictures of the HTML report, each as SVG text; "" where there is nothing to show. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "farandole/analyzer/report/report.h"

namespace farandole::html {

std::string waterfall_chart(const RunReport& run);
std::string efficiency_tree(const RunMetrics& metrics);
std::string phases_chart(const RunMetrics& metrics);  // stacked, by rank
std::string gpu_chart(const RunMetrics& metrics);     // stacked, by rank
std::string step_distribution_chart(const RunMetrics& metrics);
std::string steps_chart(const RunMetrics& metrics);      // step time and overlap over the run
std::string lateness_map(const RunMetrics& metrics);     // rank × step
std::string bandwidth_chart(const RunMetrics& metrics);  // by message size
std::string scaling_chart(const Scaling& scaling);

// How charts that have a row for each rank show many of them: in groups of neighbours.
struct RankRow {
  std::string name;                // "3 node7", "0 to 15"
  std::vector<std::size_t> ranks;  // indices into RunMetrics::ranks
};
std::vector<RankRow> rank_rows(const RunMetrics& metrics, std::size_t most);

}  // namespace farandole::html
