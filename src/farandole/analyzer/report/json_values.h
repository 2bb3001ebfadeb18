// Figures and ranges as the report's JSON has them. Plain functions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

inline nlohmann::ordered_json unknown(const std::string& why) {
  return {{"unknown", why}};
}
inline nlohmann::ordered_json json_of(const Figure& figure) {
  return figure.value ? nlohmann::ordered_json(*figure.value) : unknown(figure.unknown);
}
inline nlohmann::ordered_json json_of(const Range& range) {
  return nlohmann::ordered_json::array({range.low, range.high});
}

}  // namespace farandole
