// The report for people at a terminal: verdict first, then tables that fit 100 columns. Usable from any
// thread.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole {

// `colour`: with ANSI attributes, for a terminal that wants them.
std::string report_text(const Report& report, bool colour);

}  // namespace farandole
