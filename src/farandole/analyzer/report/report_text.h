// Writes the report for a terminal: first the verdict, then tables of at most 100 columns.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole {

// `colour`: writes ANSI attributes.
std::string report_text(const Report& report, bool colour);

}  // namespace farandole
