// Writes the report in each of its formats. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "farandole/analyzer/report/report.h"

namespace farandole {

// For a terminal: first the verdict, then tables of at most 100 columns. `colour`: writes ANSI attributes.
std::string report_text(const Report& report, bool colour);

// As JSON, "farandole_report": 1. Fractions are 0 to 1, and GB are 10^9 bytes. An unknown value is
// {"unknown": "reason"}, never null. The text ends with a newline.
std::string report_json(const Report& report);

// As one HTML file that needs no network and contains its charts. `output` is the path of the file, which is
// needed for links to the traces; empty means the current folder.
std::string report_html(const Report& report, const std::filesystem::path& output);

// One of its tables as CSV (RFC 4180), for spreadsheets and pandas. `table` is the name of a table as in
// --table. Column names give the unit of times (seconds or milliseconds); fractions are 0 to 1; unknown
// values are empty.
// Throws: UserError if there is no such table.
std::string report_csv(const Report& report, std::string_view table);

}  // namespace farandole
