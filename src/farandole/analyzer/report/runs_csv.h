// CSV tables about several runs and about predictions. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole {

std::string scaling_csv(const Report& report);
std::string scaling_fits_csv(const Report& report);
std::string comparison_csv(const Report& report);  // Throws: UserError if there is no comparison.
std::string what_if_csv(const Report& report);     // Throws: UserError if no prediction was requested.
std::string validation_csv(const Report& report);  // Throws: UserError if no validation was requested.

}  // namespace farandole
