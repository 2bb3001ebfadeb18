// The report's table of nodes, as text. A plain function.
#pragma once

#include <string>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/report/text_table.h"

namespace farandole {

// "" for less than two nodes.
std::string nodes_text(const RunMetrics& metrics, const Style& style);

}  // namespace farandole
