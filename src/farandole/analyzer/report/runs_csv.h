// CSV tables about several runs, or about what a run might have been. Plain functions.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole {

std::string scaling_csv(const Report& report);
std::string scaling_fits_csv(const Report& report);
std::string comparison_csv(const Report& report);  // UserError where nothing is compared
std::string what_if_csv(const Report& report);     // UserError where nothing was asked
std::string validation_csv(const Report& report);  // UserError where nothing was asked

}  // namespace farandole
