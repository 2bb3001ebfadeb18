// Writes predictions and validations as text. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "farandole/analyzer/report/text_table.h"
#include "farandole/analyzer/what_if/validation.h"
#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {

std::string what_if_text(const Replay& replay, const std::vector<Prediction>& predictions,
                         const Style& style);
std::string validation_text(const Validation& validation, const Style& style);

}  // namespace farandole
