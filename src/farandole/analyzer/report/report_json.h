// The report as JSON, "farandole_report": 1. Usable from any thread.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole {

// Fractions are 0 to 1, GB are 10^9 bytes; what cannot be known is {"unknown": "why"}, never null. Ends with
// a newline.
std::string report_json(const Report& report);

}  // namespace farandole
