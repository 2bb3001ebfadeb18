// What the text says of several runs together: scaling, and a comparison. Plain functions.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"
#include "farandole/analyzer/report/text_table.h"

namespace farandole {

std::string scaling_text(const Scaling& scaling, const Style& style);
// Report::comparison must be there.
std::string comparison_text(const Report& report, const Style& style);

}  // namespace farandole
