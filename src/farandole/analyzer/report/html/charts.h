// The parts of the HTML report: page, tables, charts as SVG text. They are "" if there is nothing to
// show. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/report/report.h"
#include "farandole/analyzer/report/table.h"

namespace farandole::html {

std::string training_charts(const TrainingLog& log);  // Loss and other values over the steps.
std::string waterfall_chart(const RunReport& run);
std::string efficiency_tree(const RunMetrics& metrics);
std::string phases_chart(const RunMetrics& metrics);  // Stacked bars, one per rank.
std::string gpu_chart(const RunMetrics& metrics);     // Stacked bars, one per rank.
std::string step_distribution_chart(const RunMetrics& metrics);
std::string steps_chart(const RunMetrics& metrics);      // Step time and overlap over the run.
std::string lateness_map(const RunMetrics& metrics);     // Rank × step.
std::string bandwidth_chart(const RunMetrics& metrics);  // By message size.
std::string scaling_chart(const Scaling& scaling);

// A row of a chart by rank. If there are many ranks, a row stands for a group of neighbouring ranks.
struct RankRow {
  std::string name;                // For example "3 node7" or "0 to 15".
  std::vector<std::size_t> ranks;  // Indices into RunMetrics::ranks.
};
std::vector<RankRow> rank_rows(const RunMetrics& metrics, std::size_t most);

// A page that loads nothing else, with style sheet and script.
std::string page(std::string_view title, std::string_view body);

// Returns "" if there is no content.
std::string section(const std::string& title, const std::string& sub, const std::string& content);

// Only the first `most` rows. Columns that are unknown in all rows are left out.
std::string table_of(const Table& table, std::size_t most = SIZE_MAX);

}  // namespace farandole::html
