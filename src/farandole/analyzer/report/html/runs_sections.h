// Sections of the page about several runs or about predictions. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole::html {

std::string scaling_section(const Scaling& scaling);
std::string comparison_section(const Report& report);  // Report::comparison must have a value.
std::string what_if_section(const RunReport& run);     // "" if no prediction was requested.
std::string validation_section(const Report& report);  // "" if no validation was requested.

}  // namespace farandole::html
