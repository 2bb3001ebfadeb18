// The tables of the report, each described once: rows of the JSON report, and the columns that readers see as
// text or HTML. Plain values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "farandole/analyzer/report/formatting.h"
#include "farandole/analyzer/report/report_json.h"

namespace farandole {

using CellFormat = std::function<std::string(const Json&)>;

struct Column {
  std::string label;
  std::string path;           // JSON pointer to the value within a row; "" is the whole row.
  CellFormat format = {};     // {}: numbers and texts as they are
  std::size_t width = 0;      // A terminal shows this many columns of a longer text; 0: all of them.
  bool wide = false;          // A terminal has no room for this column.
  std::string unknown = "–";  // For a value that the row does not have.
};

struct Table {
  std::vector<Column> columns;
  std::size_t left = 1;  // The first columns are aligned to the left.
  Json rows;
};

// Formats a number after it is multiplied by `factor`.
CellFormat as(std::string (*text)(double), double factor = 1);
std::string cell_text(const Column& column, const Json& row);

// For a terminal; below `most` rows it says how many more there are.
std::string text_of(const Table& table, const Style& style, std::size_t most = SIZE_MAX);

// The rows are those of `ranks`, if they have GPU times.
Table gpu_table(const RunMetrics& metrics, const std::vector<const RankMetrics*>& ranks);
Table kernel_table(const RunReport& run);
Table copy_table(const RunReport& run);
Table phase_table(const RunMetrics& metrics, const std::vector<const RankMetrics*>& ranks);
Table lateness_table(const RunReport& run, const std::vector<const RankMetrics*>& ranks);
Table rank_table(const RunReport& run);
Table resource_table(const RunReport& run);  // Of more than 16 ranks: their least, mean and most.
inline constexpr std::size_t many_nodes = 16;
Table node_table(const RunReport& run);  // Of many nodes, the latest come first.
Table collective_table(const RunReport& run);
Table mpi_call_table(const RunReport& run);
Table scaling_table(const Scaling& scaling);
Table comparison_table(const Comparison& comparison);

// The scaling table's points and forecast; "kind" tells them apart.
Json scaling_rows(const Scaling& scaling);

}  // namespace farandole
