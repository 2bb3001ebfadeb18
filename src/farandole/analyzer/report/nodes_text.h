// The report's table of nodes as text. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/report/text_table.h"

namespace farandole {

// Returns "" if there are fewer than two nodes.
std::string nodes_text(const RunMetrics& metrics, const Style& style);

}  // namespace farandole
