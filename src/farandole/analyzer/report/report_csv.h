// Any table of the report as CSV (RFC 4180), for spreadsheets and pandas. Plain functions.
#pragma once

#include <string>
#include <string_view>

#include "farandole/analyzer/report/report.h"

namespace farandole {

// "runs", "ranks", "phases", "steps", "lateness", "collectives", "losses", "wait-causes", "critical-path",
// "stragglers", "findings" or "scaling". Times are seconds or milliseconds as the column's name says,
// fractions 0 to 1; what is unknown is empty. Throws UserError for another table.
std::string report_csv(const Report& report, std::string_view table);

}  // namespace farandole
