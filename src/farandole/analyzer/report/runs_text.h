// Text about several runs together: scaling and a comparison. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"
#include "farandole/analyzer/report/text_table.h"

namespace farandole {

std::string scaling_text(const Scaling& scaling, const Style& style);
// Report::comparison must have a value.
std::string comparison_text(const Report& report, const Style& style);

}  // namespace farandole
