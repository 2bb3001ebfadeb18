// Writes the report as JSON, "farandole_report": 1.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole {

// Fractions are 0 to 1, and GB are 10^9 bytes. An unknown value is {"unknown": "reason"}, never null. The
// text ends with a newline.
std::string report_json(const Report& report);

}  // namespace farandole
