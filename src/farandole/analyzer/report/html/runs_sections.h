// Sections of the page about several runs, or about what a run might have been. Plain functions.
#pragma once

#include <string>

#include "farandole/analyzer/report/report.h"

namespace farandole::html {

std::string scaling_section(const Scaling& scaling);
std::string comparison_section(const Report& report);  // which has one
std::string what_if_section(const RunReport& run);     // "" where nothing was asked
std::string validation_section(const Report& report);  // "" where nothing was asked

}  // namespace farandole::html
