// Writes predictions and validations as JSON. Pure functions.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "farandole/analyzer/what_if/validation.h"
#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {

nlohmann::ordered_json what_if_json(const Replay& replay, const std::vector<Prediction>& predictions);
nlohmann::ordered_json validation_json(const std::vector<Validation>& validations);

}  // namespace farandole
