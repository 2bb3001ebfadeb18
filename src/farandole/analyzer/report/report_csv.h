// Writes any table of the report as CSV (RFC 4180), for spreadsheets and pandas. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>

#include "farandole/analyzer/report/report.h"

namespace farandole {

// `table` is the name of a table as in --table. Column names give the unit of times (seconds or
// milliseconds); fractions are 0 to 1; unknown values are empty.
// Throws: UserError if there is no such table.
std::string report_csv(const Report& report, std::string_view table);

}  // namespace farandole
