// Text about several runs together, or about what a run might have been: scaling, a comparison, what-if and its
// validation. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <vector>

#include "farandole/analyzer/report/report.h"
#include "farandole/analyzer/report/text_table.h"
#include "farandole/analyzer/what_if/validation.h"
#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {

std::string what_if_text(const Replay& replay, const std::vector<Prediction>& predictions,
                         const Style& style);
std::string validation_text(const Validation& validation, const Style& style);
std::string scaling_text(const Scaling& scaling, const Style& style);
// Report::comparison must have a value.
std::string comparison_text(const Report& report, const Style& style);

}  // namespace farandole
